//! Locks between the processes of one machine, with no server: the models of the core in the rows of one `SQLite` file.

mod boot;
mod clerk;
mod ears;
mod file_system;
mod ledger;
mod place;
mod presence;
mod roll;
mod row;
mod schema;
mod trouble;
mod turn;
mod wake_pipe;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use turnlock_core::model::{
    Acquired, Claim, Deed, Place as Standing, Released, Renewed, Snapshot, Wake, Wish,
};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};

use super::embedded::{OwnedClaim, unacknowledged};
use super::{Answer, Backend, Care, Examinees, Renewal, Search, Sent, Sightings, Signals, Step, Waiter};
use crate::clock;
use crate::error::Error;
use clerk::Clerk;
use ears::Ears;
use ledger::Ledger;
pub(crate) use place::Place;
use presence::Presence;
use trouble::Trouble;
use wake_pipe::WakePipe;

/// One client's way to a store in a file.
///
/// Every step is a transaction: the row of the name is read, stepped by its model, and written back. Steps are done by a
/// thread, in the order in which they came, since a file makes its reader wait. A client that has died is known by the lock
/// of the system that it had on a file of its own, and what it held is void.
pub(crate) struct File {
    place: Place,
    clerk: Clerk,
    ears: Arc<Ears>,
    presence: Arc<Presence>,
    listening: JoinHandle<()>,
}

impl File {
    /// Opens the store, or makes it. Must be called on the runtime that the client lives on.
    pub(crate) async fn open(place: Place, client: ClientId, limit: Duration) -> Result<Self, Error> {
        let what = format!("a store in {place}");
        let ears = Arc::new(Ears::new(place.clone()));
        let opening = {
            let (place, ears) = (place.clone(), Arc::clone(&ears));
            move || {
                clerk::wait_at_most(limit);
                let presence = Arc::new(Presence::new(&place, client));
                Ledger::open(place, Arc::clone(&presence), ears).map(|ledger| (ledger, presence))
            }
        };
        let opened = tokio::task::spawn_blocking(opening).await;
        let (ledger, presence) =
            opened.map_err(|_| Error::ShuttingDown)?.map_err(|trouble| trouble.into_error(&what))?;
        let pipe =
            WakePipe::open(&place, client).map_err(|error| Trouble::of_io(&error).into_error(&what))?;
        let clerk = Clerk::start(ledger).map_err(|error| Trouble::of_io(&error).into_error(&what))?;
        ears.be_heard_as(client);
        let listening = tokio::spawn(ears::listen(Arc::clone(&ears), pipe));
        Ok(Self { place, clerk, ears, presence, listening })
    }

    /// A step that the clerk does once this is polled, and in any case then.
    fn do_soon<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Ledger) -> Result<T, Trouble> + Send + 'static,
    ) -> Step<T> {
        let clerk = self.clerk.clone();
        Box::pin(async move {
            let sent = Sent { connection: ONLY_WAY, at: clock::now() };
            match clerk.perform(limit, work).await {
                Some(Ok(value)) => Ok(Answer::new(value, sent)),
                Some(Err(trouble)) => Err(trouble.into_failure(sent)),
                None => Err(Trouble::silence(limit).into_failure(sent)),
            }
        })
    }
}

/// Steps of one client are done in the order in which they were asked for, whatever happens.
const ONLY_WAY: u64 = 1;

impl Backend for File {
    fn acquire(&self, claim: Claim<'_>, wish: Wish, care: Care) -> Step<Acquired> {
        if care.replicas > 0 {
            return unacknowledged(claim.name, care.replicas);
        }
        let claim = OwnedClaim::of(claim);
        self.do_soon(care.limit, move |ledger| {
            let answer = ledger.step(&claim.name, |item, now| item.acquire(now, &claim.as_claim(), &wish))?;
            if matches!(answer, Acquired::Busy { .. }) {
                ledger.watch_those_in_the_way(&claim.name);
            }
            Ok(answer)
        })
    }

    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released> {
        let claim = OwnedClaim::of(claim);
        let step = self.do_soon(limit, move |ledger| ledger.release(&claim.as_claim()));
        Box::pin(async move {
            let Answer { value: (value, told), sent, .. } = step.await?;
            Ok(Answer { told: Some(told), ..Answer::new(value, sent) })
        })
    }

    fn renew(&self, lines: &[Renewal], care: Care) -> Step<Vec<Option<Renewed>>> {
        let lines = lines.to_vec();
        self.do_soon(care.limit, move |ledger| {
            let names: Vec<_> = lines.iter().map(|line| &line.name).collect();
            ledger.steps(&names, |at, item, now| {
                let line = &lines[at];
                item.renew(now, &line.claim(), line.lease).map(|answer| (answer, Wake::Nobody))
            })
        })
    }

    fn keep(&self, claim: Claim<'_>, lease: Lease, care: Care) -> Step<Renewed> {
        if care.replicas > 0 {
            return unacknowledged(claim.name, care.replicas);
        }
        let claim = OwnedClaim::of(claim);
        self.do_soon(care.limit, move |ledger| ledger.keep(&claim.as_claim(), lease))
    }

    fn set_lease(&self, claim: Claim<'_>, lease: Lease, care: Care) -> Step<Renewed> {
        let claim = OwnedClaim::of(claim);
        self.do_soon(care.limit, move |ledger| {
            ledger.step(&claim.name, |item, now| item.keep(now, &claim.as_claim(), lease))
        })
    }

    fn attend(&self, waiters: &[Waiter], limit: Duration) -> Step<Vec<Option<Standing>>> {
        let waiters = waiters.to_vec();
        self.do_soon(limit, move |ledger| {
            let names: Vec<_> = waiters.iter().map(|waiter| &waiter.name).collect();
            ledger.steps(&names, |at, item, now| item.attend(now, &waiters[at].owner))
        })
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let name = name.clone();
        self.do_soon(limit, move |ledger| ledger.step(&name, |item, now| item.force_unlock(now, name.kind())))
    }

    fn perform(&self, name: &LockName, deed: Deed, request: &OwnerId, limit: Duration) -> Step<i64> {
        let (name, request) = (name.clone(), request.clone());
        self.do_soon(limit, move |ledger| {
            ledger.step(&name, |item, now| item.perform(now, name.kind(), deed, &request))
        })
    }

    fn forget(&self, name: &LockName, request: &OwnerId, limit: Duration) -> Step<()> {
        let (name, request) = (name.clone(), request.clone());
        self.do_soon(limit, move |ledger| {
            ledger.step(&name, |item, _| item.forget(name.kind(), &request).map(|()| ((), Wake::Nobody)))
        })
    }

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot> {
        let name = name.clone();
        self.do_soon(limit, move |ledger| ledger.inspect(&name))
    }

    fn find(&self, search: Search, limit: Duration) -> Step<Sightings> {
        self.do_soon(limit, move |ledger| ledger.find(&search))
    }

    fn kind_of(&self, name: &LockName, limit: Duration) -> Step<Option<Kind>> {
        let name = name.clone();
        self.do_soon(limit, move |ledger| ledger.kind_of(&name))
    }

    fn introduce(&self, client: ClientId, record: String, _: Duration, limit: Duration) -> Step<()> {
        // For as long as the client lives, and no longer.
        self.do_soon(limit, move |ledger| ledger.introduce(client, &record))
    }

    fn introductions(&self, clients: &[ClientId], limit: Duration) -> Step<Vec<Option<String>>> {
        let clients = clients.to_vec();
        self.do_soon(limit, move |ledger| ledger.introductions(&clients))
    }

    fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let number = self.ears.listen_for(name);
        let name = name.clone();
        let step = self.do_soon(LISTEN_LIMIT, move |ledger| ledger.listen(&name, number));
        Box::pin(async move {
            if let Err(failure) = step.await {
                tracing::debug!(%failure, "not listening: the poll will have to do");
            }
        })
    }

    fn unlisten(&self, name: &LockName) {
        if let Some(number) = self.ears.stop_listening_for(name) {
            self.clerk.perform_some_time(LISTEN_LIMIT, move |ledger| ledger.unlisten(number));
        }
    }

    fn examinees(&self) -> Examinees<'_> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn about(&self) -> String {
        format!(
            "The store is the file {}: there is no server to look at. Its locks exclude the processes of this machine that use \
             the same file, and nobody else. They end with their processes, and with the machine.",
            self.place
        )
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.ears.attach(signals);
    }
}

/// How long it may take to be written down as a listener. Nobody waits for it for long.
const LISTEN_LIMIT: Duration = Duration::from_secs(1);

impl Drop for File {
    fn drop(&mut self) {
        self.listening.abort();
        // Nothing is under way any more: what is left of this client's holds is void from here on.
        self.presence.end();
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("place", &self.place).finish_non_exhaustive()
    }
}
