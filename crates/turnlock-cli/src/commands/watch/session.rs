use std::io;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use crossterm::event::{Event, KeyEventKind};
use tokio::sync::mpsc::UnboundedReceiver;
use turnlock::{Client, Error, Inspection};

use super::found::Found;
use super::full_screen::FullScreen;
use super::terminal_signals::{TerminalSignal, TerminalSignals};
use super::view::{Action, WatchView};
use crate::arguments::WatchArguments;
use crate::commands::lock_view::LockView;
use crate::commands::unlock;

/// How often the age of the shown state is redrawn.
const TICK: Duration = Duration::from_secs(1);
/// The exit code of Ctrl-C.
const INTERRUPTED: u8 = 130;

/// A full-screen view with its terminal and its queries.
#[derive(Debug)]
pub(super) struct Session<'a> {
    client: &'a Client,
    arguments: &'a WatchArguments,
    view: WatchView,
    screen: FullScreen,
    events: UnboundedReceiver<io::Result<Event>>,
    signals: TerminalSignals,
}

/// The result of a request that a key started.
enum Reply {
    Inspected(String, Result<Option<Box<(Inspection, LockView)>>, Error>),
    Unlocked(String, Result<Result<String, String>, Error>),
}

type Query<'a> = Pin<Box<dyn Future<Output = Result<Found, Error>> + 'a>>;
type Request<'a> = Pin<Box<dyn Future<Output = Reply> + 'a>>;

impl<'a> Session<'a> {
    /// Takes the terminal.
    pub(super) fn open(
        client: &'a Client,
        arguments: &'a WatchArguments,
        first: Found,
    ) -> anyhow::Result<Self> {
        let mut view = WatchView::new(arguments.list.clone());
        view.update(first.locks, first.is_complete, SystemTime::now());
        let signals = TerminalSignals::new()?;
        let screen = FullScreen::open()?;
        Ok(Self { client, arguments, view, screen, events: FullScreen::events()?, signals })
    }

    /// Shows locks until a key or a signal ends it.
    pub(super) async fn run(mut self) -> anyhow::Result<ExitCode> {
        let mut tick = tokio::time::interval(TICK);
        let mut query = self.query_after(self.arguments.interval);
        let mut request: Request<'a> = Box::pin(std::future::pending());
        loop {
            // Keys that came together are drawn once.
            if self.events.is_empty() {
                let (width, height) = FullScreen::size();
                self.screen.draw(&self.view.lines(width, height, SystemTime::now()))?;
            }
            tokio::select! {
                event = self.events.recv() => {
                    let Some(event) = event else { return Ok(ExitCode::SUCCESS) };
                    match self.handle(event?) {
                        Action::None => {}
                        Action::Quit => return Ok(ExitCode::SUCCESS),
                        Action::Interrupt => return Ok(ExitCode::from(INTERRUPTED)),
                        Action::Suspend => TerminalSignals::suspend_job()?,
                        Action::Redraw => self.screen.forget(),
                        Action::Query => query = self.query_after(Duration::ZERO),
                        Action::Inspect(name) => request = self.inspect(name),
                        Action::Unlock(lock) => request = self.unlock(*lock),
                    }
                }
                found = &mut query, if !self.view.is_paused() => {
                    match found {
                        Ok(found) => self.view.update(found.locks, found.is_complete, SystemTime::now()),
                        Err(error @ Error::Unavailable { .. }) => self.view.show_outage(&error),
                        Err(error) => return Err(error.into()),
                    }
                    query = self.query_after(self.arguments.interval);
                }
                reply = &mut request => {
                    request = Box::pin(std::future::pending());
                    match reply {
                        Reply::Inspected(name, lock) => self.view.show_inspected(&name, lock),
                        Reply::Unlocked(name, outcome) => self.view.show_unlocked(&name, outcome),
                    }
                    if !self.view.is_paused() {
                        query = self.query_after(Duration::ZERO);
                    }
                }
                signal = self.signals.next() => match signal {
                    TerminalSignal::Suspend => self.screen.suspend(TerminalSignals::stop)?,
                    TerminalSignal::Continue => {
                        self.screen.enter()?;
                        query = self.query_after(Duration::ZERO);
                    }
                    TerminalSignal::HangUp(code) => return Ok(code),
                },
                _ = tick.tick() => {}
            }
        }
    }

    fn handle(&mut self, event: Event) -> Action {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.view.handle(key),
            Event::Paste(text) => {
                self.view.paste(&text);
                Action::None
            }
            Event::Resize(..) => Action::Redraw,
            _ => Action::None,
        }
    }

    fn query_after(&self, delay: Duration) -> Query<'a> {
        let (client, arguments) = (self.client, self.arguments);
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            Found::query(client, arguments).await
        })
    }

    /// Queries the current holders of a lock, before they are shown for confirmation.
    fn inspect(&self, name: String) -> Request<'a> {
        let client = self.client;
        let inspect = async move |name: &str| {
            let Some(lock) = client.inspect(name).await? else { return Ok(None) };
            let view = LockView::load(client, vec![lock.clone()]).await?.pop();
            Ok(view.map(|view| Box::new((lock, view))))
        };
        Box::pin(async move {
            let lock = inspect(&name).await;
            Reply::Inspected(name, lock)
        })
    }

    fn unlock(&self, lock: Inspection) -> Request<'a> {
        let client = self.client;
        Box::pin(async move {
            let outcome = unlock::release(client, &lock, true).await;
            Reply::Unlocked(lock.name, outcome)
        })
    }
}
