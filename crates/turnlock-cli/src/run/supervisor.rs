use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use turnlock::LostReason;

use super::countdown::{Countdown, Move, Standing};
use super::event::{Event, Why};
use super::grant::Grant;
use super::run_lease::RunLease;
use super::running_command::RunningCommand;
use super::signals::{Heard, Signals, name_of};
use super::voice::Voice;

/// How often to look whether the descendants of a command that went with its lock are gone.
const LOOK: Duration = Duration::from_millis(20);

/// Looks after the command while it runs: passes signals on, and ends it when its lock ends.
pub(crate) struct Supervisor<'a> {
    pub(crate) command: RunningCommand,
    pub(crate) grant: &'a Grant,
    pub(crate) signals: &'a mut Signals,
    pub(crate) countdown: Countdown,
    pub(crate) lease: RunLease,
    pub(crate) voice: &'a Voice,
}

/// How the command has ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// It was ended, or told to, for the sake of the lock.
    pub(crate) with_its_lock: bool,
    /// The lock was lost before the command had ended, and that was reported.
    pub(crate) was_lost: bool,
}

impl Supervisor<'_> {
    /// Runs until the command is gone.
    pub(crate) async fn run(mut self) -> std::io::Result<Ending> {
        let mut lost = None;
        let mut news = None;
        let mut announced = pin!(self.grant.announce());
        let mut is_announced = false;
        let status = loop {
            let lock = Standing { valid_until: self.grant.valid_until(), lost };
            let step = self.countdown.next_move(Instant::now(), lock);
            // First what matters, then the words about it.
            self.take(step);
            self.tell_of(step, lock, news.take());
            let Move::Wait(nap) = step else { continue };
            tokio::select! {
                biased;
                status = self.command.wait() => break status?,
                heard = self.signals.next() => self.pass_on(heard),
                reason = self.grant.lost(), if lost.is_none() => {
                    news = Some(reason);
                    lost = Some(reason);
                }
                // A courtesy to people who ask: whether it succeeds changes nothing.
                _ = &mut announced, if !is_announced => is_announced = true,
                () = tokio::time::sleep_until(nap.into()) => {}
            }
        };
        let signal = status.signal().map(name_of);
        self.voice.tell(&Event::Exited { code: status.code(), signal });
        self.see_descendants_off().await;
        Ok(Ending { status, with_its_lock: self.countdown.is_losing(), was_lost: lost.is_some() })
    }

    fn take(&mut self, step: Move) {
        match step {
            Move::Wait(_) | Move::Warn => {}
            Move::Terminate => self.command.terminate(),
            Move::Kill => self.command.kill(),
        }
    }

    /// Reports a step, and first that the lock is lost if that is new. TERM because of a lost lock is part of that report.
    fn tell_of(&self, step: Move, lock: Standing, news: Option<LostReason>) {
        let end = self.countdown.end().unwrap_or(lock.valid_until);
        let left_ms =
            (step == Move::Terminate).then(|| end.saturating_duration_since(Instant::now()).as_millis());
        match (news, left_ms) {
            (Some(reason), left_ms) => self.voice.tell(&Event::Lost { why: Why::lost(reason), left_ms }),
            (None, Some(left_ms)) => {
                let why = Why::losing(self.lease.reason_of_end(lock.valid_until));
                self.voice.tell(&Event::Losing { why, left_ms });
            }
            (None, None) => {}
        }
        match step {
            Move::Wait(_) | Move::Terminate => {}
            Move::Warn => self.voice.warn("the command goes on without the lock"),
            Move::Kill => self.voice.tell(&Event::Killed),
        }
    }

    fn pass_on(&mut self, heard: Heard) {
        // What the terminal sends has reached the command as it has reached us; and what the command sends, to itself and
        // to all around it, is no news to it.
        let is_from_command = heard.by.and_then(|by| by.try_into().ok()) == Some(self.command.pid());
        let forwarded = !heard.by_system && !is_from_command;
        if forwarded {
            self.command.signal(heard.signal);
        }
        if matches!(heard.signal, Signal::TERM | Signal::INT) {
            self.countdown.was_asked(Instant::now());
        }
        self.voice.tell(&Event::Signal { signal: name_of(heard.signal.as_raw()), forwarded });
    }

    /// When the command went for the sake of the lock, its descendants have until the end of it to go as well.
    async fn see_descendants_off(&mut self) {
        let Some(end) = self.countdown.end() else { return };
        while self.command.has_descendants() && Instant::now() < end {
            tokio::time::sleep(LOOK).await;
        }
        self.command.kill();
    }
}
