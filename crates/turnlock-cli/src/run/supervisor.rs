use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use turnlock::LostReason;

use super::running_command::{Change, RunningCommand};
use crate::session::countdown::{Action, Countdown, LockState};
use crate::session::event::{Event, LossCause};
use crate::session::held_lock::HeldLock;
use crate::session::reporter::Reporter;
use crate::session::run_lease::RunLease;
use crate::session::signals::{ReceivedSignal, Signals, name_of};

/// How often to check whether the descendants of an ended command have exited.
const DESCENDANT_POLL: Duration = Duration::from_millis(20);

/// A command that runs for less is a short one, for which nothing is started that only longer ones need.
const SHORT_RUN: Duration = Duration::from_millis(50);

/// Supervises the running command: forwards signals, and ends it when its lock ends.
pub(crate) struct Supervisor<'a> {
    pub(crate) command: RunningCommand,
    pub(crate) lock: &'a HeldLock,
    pub(crate) signals: &'a mut Signals,
    pub(crate) countdown: Countdown,
    pub(crate) lease: RunLease,
    pub(crate) reporter: &'a Reporter,
}

/// How the command exited.
#[derive(Debug)]
pub(crate) struct CommandExit {
    pub(crate) status: ExitStatus,
    /// The command got TERM or KILL because of the lock.
    pub(crate) ended_by_lock: bool,
    /// The lock was lost before the command exited, and that was reported.
    pub(crate) loss_reported: bool,
}

/// Why there is no exit code of the command.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// It could not be executed.
    Spawn(io::Error),
    /// It could not be waited for.
    Wait(io::Error),
}

impl Supervisor<'_> {
    /// Runs until the command has exited.
    pub(crate) async fn run(mut self) -> Result<CommandExit, CommandError> {
        let mut lost = None;
        let mut unreported_loss = None;
        let mut announced = pin!(self.lock.announce());
        let mut is_announced = false;
        let short_until = Instant::now() + SHORT_RUN.min(self.lease.duration() / 10);
        let status = loop {
            let lock = LockState { valid_until: self.lock.valid_until(), lost };
            let action = self.countdown.next_action(Instant::now(), lock);
            // Act first, then report.
            self.apply(action);
            self.report(action, lock, unreported_loss.take());
            let Action::Wait(until) = action else { continue };
            let is_short = Instant::now() < short_until;
            let until = if is_short { until.min(short_until) } else { until };
            tokio::select! {
                biased;
                change = self.command.next() => match change {
                    Change::Started(pid) => {
                        self.reporter.report(&Event::Started { pid: pid.as_raw_nonzero().get() });
                    }
                    Change::SpawnFailed(error) => return Err(CommandError::Spawn(error)),
                    Change::Exited(status) => break status.map_err(CommandError::Wait)?,
                },
                signal = self.signals.next() => self.forward(signal),
                // Needs a thread. Until then, `valid_until` alone ends the command.
                reason = self.lock.lost(), if lost.is_none() && !is_short => {
                    unreported_loss = Some(reason);
                    lost = Some(reason);
                }
                // Only informs other clients since when the lock is held. A failure has no effect on the run.
                _ = &mut announced, if !is_announced && !is_short => is_announced = true,
                () = tokio::time::sleep_until(until.into()) => {}
            }
        };
        let signal = status.signal().map(name_of);
        self.reporter.report(&Event::Exited { code: status.code(), signal });
        self.end_descendants().await;
        Ok(CommandExit { status, ended_by_lock: self.countdown.is_ending(), loss_reported: lost.is_some() })
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Wait(_) | Action::Warn => {}
            Action::Terminate => self.command.terminate(),
            Action::Kill => self.command.kill(),
        }
    }

    /// Reports a new loss of the lock, and then the action. TERM because of a loss is part of the report of the loss.
    fn report(&self, action: Action, lock: LockState, loss: Option<LostReason>) {
        let deadline = self.countdown.deadline().unwrap_or(lock.valid_until);
        let left_ms = (action == Action::Terminate)
            .then(|| deadline.saturating_duration_since(Instant::now()).as_millis());
        match (loss, left_ms) {
            (Some(reason), left_ms) => {
                self.reporter.report(&Event::Lost { cause: LossCause::lost(reason), left_ms });
            }
            (None, Some(left_ms)) => {
                let cause = LossCause::losing(self.lease.lost_reason(lock.valid_until));
                self.reporter.report(&Event::Losing { cause, left_ms, term_sent: true });
            }
            (None, None) => {}
        }
        match action {
            Action::Wait(_) | Action::Terminate => {}
            Action::Warn => self.reporter.warn("the command continues without the lock"),
            Action::Kill => self.reporter.report(&Event::Killed),
        }
    }

    fn forward(&mut self, received: ReceivedSignal) {
        // A signal of the terminal, or one that the command sent to its process group, has reached the command already.
        let sender = received.sender.and_then(Pid::from_raw);
        let is_from_command = sender.is_some() && sender == self.command.pid();
        let forwarded = !received.from_kernel && !is_from_command;
        if forwarded {
            self.command.signal(received.signal);
        }
        if matches!(received.signal, Signal::TERM | Signal::INT) {
            self.countdown.stop_requested(Instant::now());
        }
        self.reporter.report(&Event::Signal { signal: name_of(received.signal.as_raw()), forwarded });
    }

    /// If the command was ended because of the lock, waits for its descendants until the end of the lock, then kills them.
    async fn end_descendants(&mut self) {
        let Some(deadline) = self.countdown.deadline() else { return };
        while self.command.has_descendants() && Instant::now() < deadline {
            tokio::time::sleep(DESCENDANT_POLL).await;
        }
        self.command.kill();
    }
}
