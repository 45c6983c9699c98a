use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context;
use turnlock::{Client, Error, LostReason};

use super::countdown::Countdown;
use super::event::{Event, LossCause};
use super::held_lock::HeldLock;
use super::kind_conflict;
use super::lock_target::{LockTarget, WaitLimit};
use super::reporter::Reporter;
use super::run_lease::RunLease;
use super::running_command::RunningCommand;
use super::signals::{ReceivedSignal, Signals, name_of};
use super::supervisor::{CommandError, CommandExit, Supervisor};
use super::waiting_line::WaitStatus;
use crate::arguments::StoreArguments;
use crate::commands::LockHolders;
use crate::escape::escape_message;
use crate::run_arguments::{OnLost, RunArguments};
use crate::{exit_code, store};

/// Limit of the client's shutdown, and of the wait for a release after a signal.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// The shortest time to wait for the reply to a release, even if the lock ends sooner.
const MIN_RELEASE_WAIT: Duration = Duration::from_millis(500);
/// An acquire that takes longer than this is reported as waiting.
const WAITING_AFTER: Duration = Duration::from_millis(100);
/// The shortest delay of a delayed unlock: the minimum length of a lease.
const MIN_UNLOCK_DELAY: Duration = Duration::from_millis(10);
/// Refresh interval of the waiting line.
const WAITING_LINE_REFRESH: Duration = Duration::from_secs(1);
/// Default limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest limit for connecting if `--wait` is shorter than the default.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// One command under one lock, from connecting to the exit code.
pub(crate) struct LockedRun<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a RunArguments,
    pub(crate) reporter: &'a Reporter,
    pub(crate) started: Instant,
}

/// What happened to the command.
#[derive(Debug)]
enum CommandOutcome {
    /// It could not be executed; the exit code for that.
    SpawnFailed(u8),
    /// It was not started, because the lock was lost first.
    NotStarted,
    Exited(CommandExit),
}

impl LockedRun<'_> {
    /// Connects, acquires the lock, runs the command and releases the lock. Returns the exit code.
    pub(crate) async fn perform(&self, store: &StoreArguments) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("cannot install signal handlers")?;
        let client = tokio::select! {
            biased;
            signal = signals.next() => return Ok(self.interrupted(signal)),
            client = self.connect(store) => client?,
        };
        let outcome = self.run_under_lock(&client, &mut signals).await;
        // The client still undoes cancelled requests in the background. A lock that has ended needs no release.
        let limit = match outcome {
            Ok(RunEnd { lock_is_over: true, .. }) => Duration::ZERO,
            _ => SHUTDOWN_LIMIT,
        };
        let _ = client.shutdown(limit).await;
        outcome.map(|end| end.code)
    }

    async fn connect(&self, store: &StoreArguments) -> anyhow::Result<Client> {
        let timeout = match self.wait_limit() {
            WaitLimit::AtMost(wait) => CONNECT_TIMEOUT.min(wait.max(MIN_CONNECT_TIMEOUT)),
            WaitLimit::NoWait | WaitLimit::Unlimited => CONNECT_TIMEOUT,
        };
        let builder = Client::builder().label(self.label());
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

    async fn run_under_lock(&self, client: &Client, signals: &mut Signals) -> anyhow::Result<RunEnd> {
        let acquired = tokio::select! {
            biased;
            signal = signals.next() => return Ok(RunEnd::without_lock(self.interrupted(signal))),
            acquired = self.acquire(client) => acquired,
        };
        let acquired = match acquired {
            Ok(acquired) => acquired,
            Err(error) => return self.acquire_failed(error, client).await,
        };
        let held_since = Instant::now();
        let waited_ms = self.started.elapsed().as_millis();
        let Some(lock) = acquired else {
            let is_nonblock = self.arguments.nonblock;
            let gave_up = |holders| Event::GaveUp { waited_ms, holders, is_nonblock };
            let holders = self.holders_for(&gave_up(None), client).await;
            self.reporter.report(&gave_up(holders.as_ref()));
            return Ok(RunEnd::without_lock(self.arguments.conflict_exit_code));
        };
        self.reporter.report(&Event::Acquired { owner: &lock.owner(), token: lock.token(), waited_ms });
        let outcome = self.run_command(&lock, signals).await?;
        let delay = self.arguments.at_least.map(|time| time.saturating_sub(held_since.elapsed()));
        let release = match (&outcome, delay) {
            (CommandOutcome::Exited(_), Some(delay)) if !delay.is_zero() => {
                self.unlock_after(lock, delay, signals).await
            }
            _ => self.release(lock, signals).await,
        };
        Ok(self.run_end(&outcome, release))
    }

    /// Acquires the lock. On a terminal, shows the waiting line meanwhile.
    async fn acquire(&self, client: &Client) -> Result<Option<HeldLock>, Error> {
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

    /// Queries the holders of the lock for an event, if the event is printed.
    async fn holders_for(&self, event: &Event<'_>, client: &Client) -> Option<LockHolders> {
        if !self.reporter.prints(event) {
            return None;
        }
        let target = LockTarget::new(client, self.name, self.arguments);
        LockHolders::query(client, target.inspect()).await
    }

    /// Reports a name that is in use as another kind of lock. Other errors are returned.
    async fn acquire_failed(&self, error: Error, client: &Client) -> anyhow::Result<RunEnd> {
        let Some(text) = kind_conflict::explain(&error, client, self.name, self.arguments).await else {
            return Err(error.into());
        };
        self.reporter.report_error(&anyhow::Error::msg(text));
        Ok(RunEnd::without_lock(exit_code::DATA_ERROR))
    }

    /// Queries the state of the lock for the waiting line. `None` if the store does not reply.
    async fn wait_status(&self, client: &Client, target: &LockTarget) -> Option<WaitStatus> {
        let found = target.inspect().await.ok()?;
        let owners: Vec<_> = found.holders.iter().map(|holder| holder.owner.clone()).collect();
        let identities = client.identities(&owners).await.unwrap_or_default();
        Some(WaitStatus::new(&found, identities, client.id(), self.started.elapsed()))
    }

    async fn run_command(&self, lock: &HeldLock, signals: &mut Signals) -> anyhow::Result<CommandOutcome> {
        let RunArguments { on_lost, kill_after, command: command_line, .. } = self.arguments;
        let lease = RunLease::of(self.arguments);
        let token = lock.token().map(|token| token.to_string());
        let variables = vec![
            ("TURNLOCK_NAME", Some(self.name.to_owned())),
            ("TURNLOCK_OWNER", Some(lock.owner())),
            // Removed if this lock has no token: an inherited one belongs to an outer lock.
            ("TURNLOCK_TOKEN", token),
        ];
        self.reporter.flush_before_command().await;
        // The lease may have ended since the grant, for example on a machine that was suspended.
        if !lock.is_valid() {
            let cause = LossCause::lost(lock.lost().await);
            self.reporter.report(&Event::Lost { cause, left_ms: None });
            return Ok(CommandOutcome::NotStarted);
        }
        let command =
            RunningCommand::start(command_line.clone(), variables).context("cannot start a thread")?;
        let countdown = Countdown::new(*on_lost, *kill_after, lease.duration());
        let supervisor = Supervisor { command, lock, signals, countdown, lease, reporter: self.reporter };
        match supervisor.run().await {
            Ok(exit) => Ok(CommandOutcome::Exited(exit)),
            Err(CommandError::Wait(error)) => Err(error).context("cannot wait for the command"),
            Err(CommandError::Spawn(error)) => {
                let program = command_line[0].display();
                self.reporter.report_spawn_error(&escape_message(&format!("cannot run {program}: {error}")));
                Ok(CommandOutcome::SpawnFailed(exit_code::of_spawn_error(&error)))
            }
        }
    }

    async fn release(&self, lock: HeldLock, signals: &mut Signals) -> Release {
        if !lock.is_valid() {
            return Release::Lost(lock.lost().await);
        }
        let valid_until = lock.valid_until();
        let reply = release_reply(signals, valid_until, lock.release()).await;
        let unconfirmed = "the release was not confirmed in time: the lock ends with its lease";
        self.finish_release(reply, valid_until, &Event::Released, unconfirmed)
    }

    async fn unlock_after(&self, lock: HeldLock, delay: Duration, signals: &mut Signals) -> Release {
        if !lock.is_valid() {
            return Release::Lost(lock.lost().await);
        }
        let delay = delay.max(MIN_UNLOCK_DELAY);
        let valid_until = lock.valid_until();
        let reply = release_reply(signals, valid_until, lock.unlock_after(delay)).await;
        let unconfirmed = "--at-least was not confirmed in time: the lock may end with its lease";
        let done = Event::UnlockDelayed { for_ms: delay.as_millis() };
        self.finish_release(reply, valid_until, &done, unconfirmed)
    }

    /// Reports the reply to the release of a lock that was valid until `valid_until`.
    fn finish_release(
        &self,
        reply: ReleaseReply,
        valid_until: Instant,
        done: &Event<'_>,
        unconfirmed: &'static str,
    ) -> Release {
        match reply {
            ReleaseReply::Confirmed => {
                self.reporter.report(done);
                Release::Done
            }
            ReleaseReply::Interrupted => {
                self.reporter.warn(unconfirmed);
                Release::Unconfirmed
            }
            ReleaseReply::TimedOut => {
                let reason = RunLease::of(self.arguments).lost_reason(valid_until);
                Release::Expired { reason, unconfirmed }
            }
            ReleaseReply::Failed(Error::Lost { reason, .. }) => Release::Lost(reason),
            ReleaseReply::Failed(error) => {
                self.reporter.warn(&turnlock_core::error_chain(&error));
                Release::Unconfirmed
            }
        }
    }

    /// Reports a loss that was not reported yet, and decides the exit code.
    fn run_end(&self, outcome: &CommandOutcome, release: Release) -> RunEnd {
        let (command_code, ended_by_lock, loss_reported) = match outcome {
            CommandOutcome::SpawnFailed(code) => (*code, false, false),
            CommandOutcome::NotStarted => (exit_code::LOST, true, true),
            CommandOutcome::Exited(exit) => (code_of(exit.status), exit.ended_by_lock, exit.loss_reported),
        };
        let report_loss = |reason| {
            if !loss_reported {
                self.reporter.report(&Event::Lost { cause: LossCause::lost(reason), left_ms: None });
            }
        };
        let mut is_lost = ended_by_lock;
        match release {
            Release::Done | Release::Unconfirmed => {}
            Release::Expired { reason, .. } if ended_by_lock => report_loss(reason),
            // The lock was held until the command exited.
            Release::Expired { unconfirmed, .. } => self.reporter.warn(unconfirmed),
            Release::Lost(reason) => {
                report_loss(reason);
                is_lost |=
                    self.arguments.on_lost != OnLost::Warn && matches!(outcome, CommandOutcome::Exited(_));
            }
        }
        let lock_is_over = matches!(release, Release::Expired { .. } | Release::Lost(_));
        RunEnd { code: if is_lost { exit_code::LOST } else { command_code }, lock_is_over }
    }

    /// Reports a signal that was received before the command was started. Returns the exit code.
    fn interrupted(&self, received: ReceivedSignal) -> u8 {
        let number = received.signal.as_raw();
        self.reporter.report(&Event::Signal { signal: name_of(number), forwarded: false });
        code_of_signal(number)
    }

    /// The remaining time to wait.
    fn wait_limit(&self) -> WaitLimit {
        match self.arguments {
            RunArguments { nonblock: true, .. } => WaitLimit::NoWait,
            RunArguments { wait: Some(wait), .. } => {
                WaitLimit::AtMost(wait.saturating_sub(self.started.elapsed()))
            }
            _ => WaitLimit::Unlimited,
        }
    }

    /// The label that other clients see. Without the arguments of the command, which may be confidential.
    fn label(&self) -> String {
        let program = Path::new(&self.arguments.command[0]);
        let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        self.arguments.label.clone().unwrap_or_else(|| program.into_owned())
    }
}

/// How a run ends.
struct RunEnd {
    code: u8,
    /// The lock is lost or expired: there is nothing left to release.
    lock_is_over: bool,
}

impl RunEnd {
    fn without_lock(code: u8) -> Self {
        Self { code, lock_is_over: false }
    }
}

/// The outcome of a release or delayed unlock.
#[derive(Clone, Copy)]
enum Release {
    /// Confirmed by the store.
    Done,
    /// Not confirmed by the store.
    Unconfirmed,
    /// Not confirmed before the lock ended for this reason.
    Expired { reason: LostReason, unconfirmed: &'static str },
    /// The lock was already lost.
    Lost(LostReason),
}

/// The store's reply to a release or delayed unlock.
enum ReleaseReply {
    Confirmed,
    Failed(Error),
    /// A signal ended the wait.
    Interrupted,
    /// No reply before the end of the lock.
    TimedOut,
}

/// Waits for the reply to a release until the lock ends, and only briefly after a signal.
///
/// The release continues in the background.
async fn release_reply(
    signals: &mut Signals,
    valid_until: Instant,
    release: impl Future<Output = Result<(), Error>>,
) -> ReleaseReply {
    let interrupted = async {
        signals.next().await;
        tokio::time::sleep(SHUTDOWN_LIMIT).await;
    };
    let deadline = valid_until.max(Instant::now() + MIN_RELEASE_WAIT);
    tokio::select! {
        biased;
        released = release => released.map_or_else(ReleaseReply::Failed, |()| ReleaseReply::Confirmed),
        () = interrupted => ReleaseReply::Interrupted,
        () = tokio::time::sleep_until(deadline.into()) => ReleaseReply::TimedOut,
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| code.try_into().ok());
    code.or_else(|| status.signal().map(code_of_signal)).unwrap_or(exit_code::INTERNAL_ERROR)
}

/// The exit code for a signal, as in shells.
fn code_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[tokio::test]
    async fn no_command_is_started_under_an_expired_lock() {
        let line = ["turnlock", "run", "--quiet", "--lease", "50ms", "name", "true"];
        let Command::Run(arguments) = Arguments::parse_from(line).command else { panic!("not a run") };
        let reporter = Reporter::new("name", &arguments);
        let run =
            LockedRun { name: "name", arguments: &arguments, reporter: &reporter, started: Instant::now() };
        let client = Client::connect("memory://").await.unwrap();
        let mut signals = Signals::listen().unwrap();
        let lock = run.acquire(&client).await.unwrap().expect("a free lock");
        tokio::time::sleep_until(lock.valid_until().into()).await;
        let outcome = run.run_command(&lock, &mut signals).await.unwrap();
        assert!(matches!(outcome, CommandOutcome::NotStarted), "{outcome:?}");
        let release = run.release(lock, &mut signals).await;
        let end = run.run_end(&outcome, release);
        assert_eq!((end.code, end.lock_is_over), (exit_code::LOST, true));
    }
}
