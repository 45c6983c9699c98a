use std::cell::Cell;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::Context;
use turnlock::{Client, Error};

use super::event::Event;
use super::held_lock::HeldLock;
use super::kind_conflict;
use super::lock_target::{LockTarget, WaitLimit};
use super::reporter::Reporter;
use super::signals::{Signals, name_of};
use super::waiting_line::WaitStatus;
use crate::arguments::StoreArguments;
use crate::commands::LockHolders;
use crate::lock_arguments::LockArguments;
use crate::store;

/// Limit of the client's shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// An acquire that takes longer than this is reported as waiting.
const WAITING_AFTER: Duration = Duration::from_millis(100);
/// Refresh interval of the waiting line.
const WAITING_LINE_REFRESH: Duration = Duration::from_secs(1);
/// Default limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest limit for connecting if `--wait` is shorter than the default.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// One lock of the command line, from connecting to the shutdown of the client.
pub(crate) struct LockSession<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a LockArguments,
    /// The label that other clients see.
    pub(crate) label: &'a str,
    pub(crate) reporter: &'a Reporter,
    pub(crate) started: Instant,
    /// When the last step before the hold ended: connecting, or the wait for the lock.
    pub(crate) wait_ended: Cell<Instant>,
}

/// A lock that was just acquired.
pub(crate) struct Grant {
    pub(crate) lock: HeldLock,
    pub(crate) at: Instant,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionEnd {
    /// The exit code.
    pub(crate) code: u8,
    /// The lock is lost or expired: there is nothing left to release.
    pub(crate) lock_is_over: bool,
}

impl SessionEnd {
    fn without_lock(code: u8) -> Self {
        Self { code, lock_is_over: false }
    }
}

impl<'a> LockSession<'a> {
    /// A session that starts now, with this label unless `--label` is given.
    pub(crate) fn new(
        name: &'a str,
        arguments: &'a LockArguments,
        label: &'a str,
        reporter: &'a Reporter,
    ) -> Self {
        let label = arguments.label.as_deref().unwrap_or(label);
        let started = Instant::now();
        Self { name, arguments, label, reporter, started, wait_ended: Cell::new(started) }
    }

    /// Connects, acquires the lock, and runs `under_lock`, which releases it. Returns the exit code.
    ///
    /// If `abandoned` completes before the lock is acquired, the wait ends as at its time-out.
    pub(crate) async fn perform(
        &self,
        store: &StoreArguments,
        abandoned: impl Future<Output = ()>,
        under_lock: impl AsyncFnOnce(Grant, &mut Signals) -> anyhow::Result<SessionEnd>,
    ) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("cannot install signal handlers")?;
        let mut abandoned = std::pin::pin!(abandoned);
        let connect = Box::pin(self.connect(store));
        let connected = self.unless_stopped(&mut signals, abandoned.as_mut(), connect).await;
        let client = match connected {
            Ok(client) => client?,
            Err(code) => return Ok(code),
        };
        let acquire = Box::pin(self.acquire(&client));
        let acquired = self.unless_stopped(&mut signals, abandoned, acquire).await;
        let outcome = match acquired {
            Ok(Ok(Some(grant))) => under_lock(grant, &mut signals).await,
            Ok(Ok(None)) => Ok(SessionEnd::without_lock(self.report_conflict(&client).await)),
            Ok(Err(error)) => Err(kind_conflict::explain(error, &client, self.name, self.arguments).await),
            Err(code) => Ok(SessionEnd::without_lock(code)),
        };
        // The client still undoes cancelled requests in the background. A lock that has ended needs no release.
        let limit = match outcome {
            Ok(SessionEnd { lock_is_over: true, .. }) => Duration::ZERO,
            _ => SHUTDOWN_LIMIT,
        };
        let _ = client.shutdown(limit).await;
        outcome.map(|end| end.code)
    }

    /// Runs `step`. If a signal or `abandoned` comes first, cancels it and returns the exit code.
    async fn unless_stopped<T>(
        &self,
        signals: &mut Signals,
        abandoned: Pin<&mut impl Future<Output = ()>>,
        step: impl Future<Output = T>,
    ) -> Result<T, u8> {
        let outcome = tokio::select! {
            biased;
            received = signals.next() => {
                let number = received.signal.as_raw();
                self.reporter.report(&Event::Signal { signal: name_of(number), forwarded: false });
                Err(code_of_signal(number))
            }
            () = abandoned => Err(self.give_up(None, None)),
            done = step => Ok(done),
        };
        self.wait_ended.set(Instant::now());
        outcome
    }

    async fn connect(&self, store: &StoreArguments) -> anyhow::Result<Client> {
        let timeout = match self.wait_limit() {
            WaitLimit::AtMost(wait) => CONNECT_TIMEOUT.min(wait.max(MIN_CONNECT_TIMEOUT)),
            WaitLimit::NoWait | WaitLimit::Unlimited => CONNECT_TIMEOUT,
        };
        let builder = Client::builder().label(self.label);
        let builder = if store::url_sets(store, "connect_timeout") {
            builder
        } else {
            builder.connect_timeout(timeout)
        };
        let builder = match self.arguments.lease {
            // A fixed lease is not renewed.
            Some(_) => builder,
            None => builder.watchdog_timeout(self.arguments.watchdog),
        };
        store::connect(store, builder).await
    }

    /// Acquires the lock and reports it, or returns `None` after `--wait`.
    pub(crate) async fn acquire(&self, client: &Client) -> Result<Option<Grant>, Error> {
        let Some(lock) = self.wait_for_lock(client).await? else { return Ok(None) };
        let at = Instant::now();
        let waited_ms = self.started.elapsed().as_millis();
        self.reporter.report(&Event::Acquired { owner: &lock.owner(), token: lock.token(), waited_ms });
        Ok(Some(Grant { lock, at }))
    }

    /// Waits for the lock. On a terminal, shows the waiting line meanwhile.
    async fn wait_for_lock(&self, client: &Client) -> Result<Option<HeldLock>, Error> {
        let target = LockTarget::new(client, self.name, self.arguments);
        let acquired = target.acquire(self.wait_limit(), self.reporter);
        tokio::pin!(acquired);
        if let Ok(acquired) = tokio::time::timeout(WAITING_AFTER, &mut acquired).await {
            return acquired;
        }
        // The lock may be granted meanwhile.
        let (holders, acquired_now) = tokio::select! {
            biased;
            acquired = &mut acquired => (None, Some(acquired)),
            holders = self.holders_for(&Event::Waiting { holders: None }, client) => (holders, None),
        };
        self.reporter.report(&Event::Waiting { holders: holders.as_ref() });
        if let Some(acquired) = acquired_now {
            return acquired;
        }
        if !self.reporter.shows_waiting_line() {
            return acquired.await;
        }
        let line = self.reporter.waiting_line();
        let show = async {
            loop {
                if let Some(status) = self.wait_status(client, &target).await {
                    line.draw(&status.text());
                }
                tokio::time::sleep(WAITING_LINE_REFRESH).await;
            }
        };
        tokio::select! {
            biased;
            acquired = acquired => acquired,
            never = show => never,
        }
    }

    /// Queries the state of the lock for the waiting line. `None` if the store does not reply.
    async fn wait_status(&self, client: &Client, target: &LockTarget) -> Option<WaitStatus> {
        let found = target.inspect().await.ok()?;
        let holders = LockHolders::query(client, std::future::ready(Ok(found.clone()))).await;
        Some(WaitStatus::new(&found, holders.as_ref(), client.id(), self.started.elapsed()))
    }

    /// Reports that another owner holds the lock. Returns the exit code.
    async fn report_conflict(&self, client: &Client) -> u8 {
        let flag = if self.arguments.nonblock { "-n" } else { "-w" };
        let gave_up = Event::GaveUp { waited_ms: 0, holders: None, flag: Some(flag) };
        let holders = self.holders_for(&gave_up, client).await;
        self.give_up(holders.as_ref(), Some(flag))
    }

    /// Reports that the lock was not acquired. Returns the exit code.
    fn give_up(&self, holders: Option<&LockHolders>, flag: Option<&'static str>) -> u8 {
        let waited_ms = self.started.elapsed().as_millis();
        self.reporter.report(&Event::GaveUp { waited_ms, holders, flag });
        self.arguments.conflict_exit_code
    }

    /// Queries the holders of the lock for an event, if the event is printed.
    async fn holders_for(&self, event: &Event<'_>, client: &Client) -> Option<LockHolders> {
        if !self.reporter.prints(event) {
            return None;
        }
        let target = LockTarget::new(client, self.name, self.arguments);
        LockHolders::query(client, target.inspect()).await
    }

    /// The remaining time to wait.
    fn wait_limit(&self) -> WaitLimit {
        match self.arguments {
            LockArguments { nonblock: true, .. } => WaitLimit::NoWait,
            LockArguments { wait: Some(wait), .. } => {
                WaitLimit::AtMost(wait.saturating_sub(self.started.elapsed()))
            }
            _ => WaitLimit::Unlimited,
        }
    }
}

/// The exit code for a signal, as in shells.
pub(crate) fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
