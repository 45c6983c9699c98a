use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;

use super::metrics_file::{RunOutcome, RunReport};
use super::running_command::RunningCommand;
use super::supervisor::{CommandError, CommandExit, Supervisor};
use crate::arguments::StoreArguments;
use crate::escape::escape_message;
use crate::exit_code;
use crate::run_arguments::{OnLost, RunArguments};
use crate::session::countdown::Countdown;
use crate::session::event::{Event, LossCause};
use crate::session::held_lock::HeldLock;
use crate::session::lock_session::{Grant, LockSession, SessionEnd, code_of_signal};
use crate::session::release::Release;
use crate::session::run_lease::RunLease;
use crate::session::signals::Signals;

/// One command under one lock, from connecting to the exit code.
pub(crate) struct LockedRun<'a> {
    session: LockSession<'a>,
    arguments: &'a RunArguments,
    /// When the lock was acquired, and when and how the hold ended. `None` without a lock.
    hold: Cell<Option<(Instant, Instant, RunOutcome)>>,
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

impl<'a> LockedRun<'a> {
    pub(crate) fn new(session: LockSession<'a>, arguments: &'a RunArguments) -> Self {
        Self { session, arguments, hold: Cell::new(None) }
    }

    /// What the run reports after it ended with `code`; `without_lock` is how, if the lock was not acquired.
    pub(crate) fn report(&self, code: u8, without_lock: RunOutcome, started: SystemTime) -> RunReport<'_> {
        // Not the time of the report: the holders were queried, and the client was shut down since.
        let waited = self.session.wait_ended.get() - self.session.started;
        let (held, outcome) = match self.hold.get() {
            Some((from, to, outcome)) => (to - from, outcome),
            None => (Duration::ZERO, without_lock),
        };
        let LockSession { name, label, .. } = self.session;
        RunReport { name, label, outcome, code, waited, held, started, ended: SystemTime::now() }
    }

    /// Connects, acquires the lock, runs the command and releases the lock. Returns the exit code.
    pub(crate) async fn perform(&self, store: &StoreArguments) -> anyhow::Result<u8> {
        let under_lock = async |grant, signals: &mut Signals| self.run_under_lock(grant, signals).await;
        self.session.perform(store, std::future::pending(), under_lock).await
    }

    async fn run_under_lock(&self, grant: Grant, signals: &mut Signals) -> anyhow::Result<SessionEnd> {
        let acquired = grant.at;
        let outcome = self.run_command(&grant.lock, signals).await;
        // That of the command: a release can take as long as the store lets it.
        let ended = Instant::now();
        self.hold.set(Some((acquired, ended, RunOutcome::Failed)));
        let outcome = outcome?;
        let release = match outcome {
            CommandOutcome::Exited(_) => self.session.release_in_order(grant, signals).await,
            _ => self.session.release(grant.lock, signals).await,
        };
        let (end, was_lost) = self.end(&outcome, release);
        let outcome = match outcome {
            _ if was_lost => RunOutcome::Lost,
            CommandOutcome::SpawnFailed(_) => RunOutcome::Failed,
            _ => RunOutcome::Ran,
        };
        self.hold.set(Some((acquired, ended, outcome)));
        Ok(end)
    }

    async fn run_command(&self, lock: &HeldLock, signals: &mut Signals) -> anyhow::Result<CommandOutcome> {
        let RunArguments { on_lost, kill_after, command: command_line, .. } = self.arguments;
        let lease = RunLease::of(&self.arguments.lock);
        let token = lock.token().map(|token| token.to_string());
        let variables = vec![
            ("TURNLOCK_NAME", Some(self.session.name.to_owned())),
            ("TURNLOCK_OWNER", Some(lock.owner())),
            // Removed if this lock has no token: an inherited one belongs to an outer lock.
            ("TURNLOCK_TOKEN", token),
        ];
        self.session.reporter.flush_before_command().await;
        // The lease may have ended since the grant, for example on a machine that was suspended.
        if !lock.is_valid() {
            let cause = LossCause::lost(lock.lost().await);
            self.session.reporter.report(&Event::Lost { cause, left_ms: None });
            return Ok(CommandOutcome::NotStarted);
        }
        let command =
            RunningCommand::start(command_line.clone(), variables).context("cannot start a thread")?;
        let countdown = Countdown::new(*on_lost, *kill_after, lease.duration());
        let supervisor =
            Supervisor { command, lock, signals, countdown, lease, reporter: self.session.reporter };
        match supervisor.run().await {
            Ok(exit) => Ok(CommandOutcome::Exited(exit)),
            Err(CommandError::Wait(error)) => Err(error).context("cannot wait for the command"),
            Err(CommandError::Spawn(error)) => {
                let program = command_line[0].display();
                self.session
                    .reporter
                    .report_spawn_error(&escape_message(&format!("cannot run {program}: {error}")));
                Ok(CommandOutcome::SpawnFailed(exit_code::of_spawn_error(&error)))
            }
        }
    }

    /// Reports a loss that was not reported yet, and decides the exit code and whether the lock was lost.
    fn end(&self, outcome: &CommandOutcome, release: Release) -> (SessionEnd, bool) {
        let (command_code, ended_by_lock, loss_reported) = match outcome {
            CommandOutcome::SpawnFailed(code) => (*code, false, false),
            CommandOutcome::NotStarted => (exit_code::LOST, true, true),
            CommandOutcome::Exited(exit) => (code_of(exit.status), exit.ended_by_lock, exit.loss_reported),
        };
        let report_loss = |reason| {
            if !loss_reported {
                self.session.reporter.report(&Event::Lost { cause: LossCause::lost(reason), left_ms: None });
            }
        };
        let mut is_lost = ended_by_lock;
        let was_lost = ended_by_lock || matches!(release, Release::Lost(_));
        match release {
            Release::Done | Release::Unconfirmed => {}
            Release::Expired { reason, .. } if ended_by_lock => report_loss(reason),
            // The lock was held until the command exited.
            Release::Expired { unconfirmed, .. } => self.session.reporter.warn(unconfirmed),
            Release::Lost(reason) => {
                report_loss(reason);
                is_lost |=
                    self.arguments.on_lost != OnLost::Warn && matches!(outcome, CommandOutcome::Exited(_));
            }
        }
        let code = if is_lost { exit_code::LOST } else { command_code };
        (SessionEnd { code, lock_is_over: release.lock_is_over() }, was_lost)
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| code.try_into().ok());
    code.or_else(|| status.signal().map(code_of_signal)).unwrap_or(exit_code::INTERNAL_ERROR)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use turnlock::Client;

    use super::*;
    use crate::arguments::{Arguments, Command};
    use crate::session::reporter::Reporter;

    #[tokio::test]
    async fn no_command_is_started_under_an_expired_lock() {
        let line = ["turnlock", "run", "--quiet", "--lease", "50ms", "name", "true"];
        let Command::Run(arguments) = Arguments::parse_from(line).command else { panic!("not a run") };
        let reporter = Reporter::new("name", &arguments.lock);
        let session = LockSession::new("name", &arguments.lock, "true", &reporter);
        let run = LockedRun::new(session, &arguments);
        let client = Client::connect("memory://").await.unwrap();
        let mut signals = Signals::listen().unwrap();
        let grant = run.session.acquire(&client).await.unwrap().expect("a free lock");
        tokio::time::sleep_until(grant.lock.valid_until().into()).await;
        let outcome = run.run_command(&grant.lock, &mut signals).await.unwrap();
        assert!(matches!(outcome, CommandOutcome::NotStarted), "{outcome:?}");
        let release = run.session.release(grant.lock, &mut signals).await;
        let end = run.end(&outcome, release);
        assert_eq!(end, (SessionEnd { code: exit_code::LOST, lock_is_over: true }, true));
    }
}
