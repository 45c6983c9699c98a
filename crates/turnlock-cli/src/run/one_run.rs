use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context;
use turnlock::{Client, Error, LostReason};

use super::countdown::Countdown;
use super::event::{Event, Why};
use super::grant::Grant;
use super::run_lease::RunLease;
use super::running_command::RunningCommand;
use super::signals::{Heard, Signals, name_of};
use super::starter;
use super::supervisor::{Ending, Supervisor};
use super::voice::Voice;
use super::waiting_line::Scene;
use super::wanted::{Patience, Wanted};
use crate::arguments::StoreArguments;
use crate::run_arguments::{OnLost, RunArguments};
use crate::{exit_code, store};

/// How long the end of the program may take when everything that matters is done.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the store has at the least to confirm a release, also when the lock ends before that.
const SHORTEST_RELEASE: Duration = Duration::from_millis(500);
/// How long to wait before it counts as waiting.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The shortest time for which a lock can be kept.
const SHORTEST: Duration = Duration::from_millis(10);
/// How often what is waited for is looked at, for people.
const LOOK: Duration = Duration::from_secs(1);
/// How long connecting may take when nothing else limits it, and when somebody is in a hurry.
const CONNECTING: Duration = Duration::from_secs(5);
const CONNECTING_IN_A_HURRY: Duration = Duration::from_secs(1);

/// One command under one lock, from connecting to the exit code.
pub(crate) struct OneRun<'a> {
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a RunArguments,
    pub(crate) voice: &'a Voice,
    pub(crate) began: Instant,
}

/// What has become of the command.
#[derive(Debug)]
enum Outcome {
    /// It could not be started, which has this exit code.
    Refused(u8),
    /// It was not started: the lock was lost before that.
    TooLate,
    Ended(Ending),
}

impl OneRun<'_> {
    /// All of it. The exit code.
    pub(crate) async fn perform(&self, store: &StoreArguments) -> anyhow::Result<u8> {
        let mut signals = Signals::listen().context("signals cannot be listened for")?;
        let client = tokio::select! {
            biased;
            heard = signals.next() => return Ok(self.interrupted(heard)),
            client = self.connect(store) => client?,
        };
        let outcome = self.under_lock(&client, &mut signals).await;
        // What was given up on the way is still being taken back. A lock that has ended needs nothing more.
        let limit = match outcome {
            Ok(RunEnd { lock_is_over: true, .. }) => Duration::ZERO,
            _ => LAST_WORDS,
        };
        let _ = client.shutdown(limit).await;
        outcome.map(|end| end.code)
    }

    async fn connect(&self, store: &StoreArguments) -> anyhow::Result<Client> {
        let limit = match self.patience() {
            Patience::AtMost(wait) => CONNECTING.min(wait.max(CONNECTING_IN_A_HURRY)),
            Patience::None | Patience::Endless => CONNECTING,
        };
        let builder = Client::builder().label(self.label());
        let builder =
            if store::sets(store, "connect_timeout") { builder } else { builder.connect_timeout(limit) };
        let builder = match self.arguments.lease {
            // Nothing is renewed then.
            Some(_) => builder,
            None => builder.watchdog(self.arguments.watchdog),
        };
        store::connect(store, builder).await
    }

    async fn under_lock(&self, client: &Client, signals: &mut Signals) -> anyhow::Result<RunEnd> {
        let granted = tokio::select! {
            biased;
            heard = signals.next() => return Ok(RunEnd::without_lock(self.interrupted(heard))),
            granted = self.wait(client) => granted?,
        };
        let held_since = Instant::now();
        let waited_ms = self.began.elapsed().as_millis();
        let Some(grant) = granted else {
            self.voice.tell(&Event::GaveUp { waited_ms });
            return Ok(RunEnd::without_lock(self.arguments.conflict_exit_code));
        };
        self.voice.tell(&Event::Acquired { owner: &grant.owner(), token: grant.token(), waited_ms });
        let outcome = self.run_command(&grant, signals).await?;
        let kept = self.arguments.at_least.map(|time| time.saturating_sub(held_since.elapsed()));
        let let_go = match (&outcome, kept) {
            (Outcome::Ended(_), Some(rest)) if !rest.is_zero() => self.keep(grant, rest, signals).await,
            _ => self.give_back(grant, signals).await,
        };
        Ok(self.verdict(&outcome, let_go))
    }

    /// Waits for the lock, and shows that on a terminal.
    async fn wait(&self, client: &Client) -> Result<Option<Grant>, Error> {
        let wanted = Wanted::new(client, self.name, self.arguments);
        let taken = wanted.take(self.patience(), self.voice);
        tokio::pin!(taken);
        if let Ok(taken) = tokio::time::timeout(AT_ONCE, &mut taken).await {
            return taken;
        }
        self.voice.tell(&Event::Waiting);
        if !self.voice.has_audience() {
            return taken.await;
        }
        let line = self.voice.waiting_line();
        let show = async {
            loop {
                if let Some(scene) = self.scene(client, &wanted).await {
                    line.draw(&scene.words());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            taken = taken => taken,
            never = show => never,
        }
    }

    /// What is waited for; nothing when the store does not tell just now.
    async fn scene(&self, client: &Client, wanted: &Wanted) -> Option<Scene> {
        let found = wanted.inspect().await.ok()?;
        let owners: Vec<_> = found.holders.iter().map(|holder| holder.owner.clone()).collect();
        let identities = client.identities(&owners).await.unwrap_or_default();
        Some(Scene::new(&found, identities, client.id(), self.began.elapsed()))
    }

    async fn run_command(&self, grant: &Grant, signals: &mut Signals) -> anyhow::Result<Outcome> {
        let RunArguments { on_lost, kill_after, command: words, .. } = self.arguments;
        let lease = RunLease::of(self.arguments);
        let token = grant.token().map(|token| token.to_string());
        let variables = [
            ("TURNLOCK_NAME", Some(self.name.to_owned())),
            ("TURNLOCK_OWNER", Some(grant.owner())),
            // One of a lock around this one would be taken for ours.
            ("TURNLOCK_TOKEN", token),
        ];
        self.voice.make_way().await;
        // Whatever has held this program up since the grant, such as a machine that slept.
        if !grant.is_valid() {
            self.voice.tell(&Event::Lost { why: Why::lost(grant.lost().await), left_ms: None });
            return Ok(Outcome::TooLate);
        }
        let command = match RunningCommand::start(words, &variables) {
            Ok(command) => command,
            Err(error) => {
                let (words, code) = starter::refusal(&words[0], &error);
                self.voice.refuse(&words);
                return Ok(Outcome::Refused(code));
            }
        };
        self.voice.tell(&Event::Started { pid: command.pid() });
        let countdown = Countdown::new(*on_lost, *kill_after, lease.time());
        let supervisor = Supervisor { command, grant, signals, countdown, lease, voice: self.voice };
        Ok(Outcome::Ended(supervisor.run().await.context("the command cannot be waited for")?))
    }

    async fn give_back(&self, grant: Grant, signals: &mut Signals) -> LetGo {
        if !grant.is_valid() {
            return LetGo::Lost(grant.lost().await);
        }
        let end = grant.valid_until();
        let answer = until_over(signals, end, grant.give_back()).await;
        let unconfirmed = "the release was not confirmed in time: the lock ends with its lease";
        self.let_go(answer, end, &Event::Released, unconfirmed)
    }

    async fn keep(&self, grant: Grant, time: Duration, signals: &mut Signals) -> LetGo {
        if !grant.is_valid() {
            return LetGo::Lost(grant.lost().await);
        }
        // What is left may be less than a lock can be held for.
        let time = time.max(SHORTEST);
        let end = grant.valid_until();
        let answer = until_over(signals, end, grant.keep_for(time)).await;
        let unconfirmed = "it was not confirmed in time that the lock is kept: it may end with its lease";
        self.let_go(answer, end, &Event::Kept { for_ms: time.as_millis() }, unconfirmed)
    }

    /// What a reply to the last request for a lock means, that was valid until `end`.
    fn let_go(&self, answer: Answer, end: Instant, done: &Event<'_>, unconfirmed: &'static str) -> LetGo {
        match answer {
            Answer::Confirmed => {
                self.voice.tell(done);
                LetGo::Done
            }
            Answer::NotAwaited => {
                self.voice.warn(unconfirmed);
                LetGo::Unconfirmed
            }
            Answer::TooLate => {
                LetGo::Over { reason: RunLease::of(self.arguments).reason_of_end(end), unconfirmed }
            }
            Answer::Refused(Error::Lost { reason, .. }) => LetGo::Lost(reason),
            Answer::Refused(error) => {
                self.voice.warn(&error.to_string());
                LetGo::Unconfirmed
            }
        }
    }

    /// How a run ends whose command is gone, and whose lock was given back or not.
    fn verdict(&self, outcome: &Outcome, let_go: LetGo) -> RunEnd {
        let (own, with_its_lock, was_told) = match outcome {
            Outcome::Refused(code) => (*code, false, false),
            Outcome::TooLate => (exit_code::LOST, true, true),
            Outcome::Ended(ending) => (code_of(ending.status), ending.with_its_lock, ending.was_lost),
        };
        let tell = |reason| {
            if !was_told {
                self.voice.tell(&Event::Lost { why: Why::lost(reason), left_ms: None });
            }
        };
        let mut is_lost = with_its_lock;
        match let_go {
            LetGo::Done | LetGo::Unconfirmed => {}
            LetGo::Over { reason, .. } if with_its_lock => tell(reason),
            // The lock was held until the end of the command.
            LetGo::Over { unconfirmed, .. } => self.voice.warn(unconfirmed),
            LetGo::Lost(reason) => {
                tell(reason);
                is_lost |= self.arguments.on_lost != OnLost::Warn && matches!(outcome, Outcome::Ended(_));
            }
        }
        let lock_is_over = matches!(let_go, LetGo::Over { .. } | LetGo::Lost(_));
        RunEnd { code: if is_lost { exit_code::LOST } else { own }, lock_is_over }
    }

    /// A signal came before there was a command to send it to.
    fn interrupted(&self, heard: Heard) -> u8 {
        let number = heard.signal.as_raw();
        self.voice.tell(&Event::Signal { signal: name_of(number), forwarded: false });
        ended_by(number)
    }

    /// What is left of the time to wait.
    fn patience(&self) -> Patience {
        match self.arguments {
            RunArguments { nonblock: true, .. } => Patience::None,
            RunArguments { wait: Some(wait), .. } => {
                Patience::AtMost(wait.saturating_sub(self.began.elapsed()))
            }
            _ => Patience::Endless,
        }
    }

    /// What others see of this run. Not the arguments of the command, which may be nobody's business.
    fn label(&self) -> String {
        let program = Path::new(&self.arguments.command[0]);
        let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        self.arguments.label.clone().unwrap_or_else(|| program.into_owned())
    }
}

/// How a run has ended.
struct RunEnd {
    code: u8,
    /// The lock is lost, or its lease is over: the store has nothing left to release.
    lock_is_over: bool,
}

impl RunEnd {
    fn without_lock(code: u8) -> Self {
        Self { code, lock_is_over: false }
    }
}

/// What became of a lock whose command has ended.
#[derive(Clone, Copy)]
enum LetGo {
    /// Released, or kept.
    Done,
    /// Not confirmed by the store.
    Unconfirmed,
    /// Not confirmed by the store before the lock ended in this way.
    Over { reason: LostReason, unconfirmed: &'static str },
    /// It was lost already.
    Lost(LostReason),
}

/// What the store has replied to the last request for a lock.
enum Answer {
    Confirmed,
    Refused(Error),
    /// A signal came that asks this program to end.
    NotAwaited,
    /// Nothing before the end of the lock.
    TooLate,
}

/// Waits for the reply to a release until the lock ends by itself, and not for long after a signal. The release goes on in the
/// background.
async fn until_over(
    signals: &mut Signals,
    end: Instant,
    release: impl Future<Output = Result<(), Error>>,
) -> Answer {
    let hurry = async {
        signals.next().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let end = end.max(Instant::now() + SHORTEST_RELEASE);
    tokio::select! {
        biased;
        released = release => released.map_or_else(Answer::Refused, |()| Answer::Confirmed),
        () = hurry => Answer::NotAwaited,
        () = tokio::time::sleep_until(end.into()) => Answer::TooLate,
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| code.try_into().ok());
    code.or_else(|| status.signal().map(ended_by)).unwrap_or(exit_code::FAULT)
}

/// The exit code for the end by a signal, as shells have it.
fn ended_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[tokio::test]
    async fn no_command_is_started_under_a_lock_that_is_over() {
        let words = ["turnlock", "run", "--quiet", "--lease", "50ms", "name", "true"];
        let Command::Run(arguments) = Arguments::parse_from(words).command else { panic!("not a run") };
        let voice = Voice::new("name", &arguments).unwrap();
        let run = OneRun { name: "name", arguments: &arguments, voice: &voice, began: Instant::now() };
        let client = Client::connect("memory://").await.unwrap();
        let mut signals = Signals::listen().unwrap();
        let grant = run.wait(&client).await.unwrap().expect("a free lock");
        tokio::time::sleep_until(grant.valid_until().into()).await;
        let outcome = run.run_command(&grant, &mut signals).await.unwrap();
        assert!(matches!(outcome, Outcome::TooLate), "{outcome:?}");
        let let_go = run.give_back(grant, &mut signals).await;
        let end = run.verdict(&outcome, let_go);
        assert_eq!((end.code, end.lock_is_over), (exit_code::LOST, true));
    }
}
