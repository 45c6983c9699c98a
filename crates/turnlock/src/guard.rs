use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use turnlock_core::{Kind, OwnerId};

use crate::clock;
use crate::engine::{self, Deepening, Engine, Hold, Patience, Term};
use crate::error::{Error, LostReason};
use crate::owner::OwnerFile;

/// A lock that is held. Dropping it gives the lock back in the background; [`unlock`](Guard::unlock) is the certain way.
///
/// **Guarantee.** From the moment a guard is handed out until [`lost`](Guard::lost) is ready, [`is_valid`](Guard::is_valid)
/// is false or the guard is dropped, no other owner holds the lock, as long as the store keeps its data and its clock
/// runs at the usual speed.
///
/// **Limits.** A lock with a lease cannot hold back a process that was paused: it may go on for a moment after its lease
/// has ended elsewhere. Look at `is_valid` before a step that must not be done twice, or protect what you write by other
/// means.
///
/// Guards are `Send`, can be dropped on any thread, with or without a runtime, and during a panic. The work of a dropped
/// guard is done by the client, on the runtime on which the client was made. A program that ends right after the drop
/// should call `unlock` or [`Client::shutdown`](crate::Client::shutdown) first, or else the lock stays held until its
/// lease ends.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let guard = client.lock("orders").lock().await?;
/// assert!(guard.is_valid());
/// guard.unlock().await?;
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[must_use = "a guard that is not kept is dropped, and the lock with it"]
#[derive(Debug)]
pub struct Guard {
    engine: Arc<Engine>,
    hold: Arc<Hold>,
    term: Term,
    token: Option<u64>,
    /// What the owner has of the lock, where the owner was named.
    file: Weak<OwnerFile>,
    given_back: bool,
}

impl Guard {
    pub(crate) fn new(engine: Arc<Engine>, hold: Arc<Hold>, term: Term, token: Option<u64>) -> Self {
        Self { engine, hold, term, token, file: Weak::new(), given_back: false }
    }

    /// Notes that what this guard stands for is the owner's that `file` belongs to.
    pub(crate) fn file_with(mut self, file: &Weak<OwnerFile>) -> Self {
        if let Some(file) = file.upgrade() {
            file.set_hold(&self.hold);
            self.hold.state().is_personal = true;
        }
        self.file = Weak::clone(file);
        self
    }

    pub(crate) fn file(&self) -> &Weak<OwnerFile> {
        &self.file
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(&self.engine, engine)
    }

    /// Lets go of the guard and leaves what it stands for as it is on the store, without renewal.
    pub(crate) fn abandon(mut self) {
        self.given_back = true;
        self.engine.shared.let_go(&self.hold, self.term);
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// The owner on the wire: `<client uuid>:<number>`, as it stands in the lock's hash. Guards that one after the other had the
    /// lock without a word to the store have the same one: see
    /// [`Builder::hand_over_window`](crate::Builder::hand_over_window).
    pub fn owner_id(&self) -> &OwnerId {
        &self.hold.owner
    }

    /// The fencing token of this grant: higher than that of every grant before it. Only a
    /// [fenced lock](crate::Client::fenced_lock) has one.
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// How many replicas had acknowledged the hold when it was last confirmed: granted, renewed or reentered. 0 when none
    /// were [asked for](crate::Lock::acknowledged_by).
    pub fn replicas(&self) -> u32 {
        self.hold.replicas_reached()
    }

    /// How many guards share this hold: one, and one more for each [`reenter`](Guard::reenter).
    pub fn hold_count(&self) -> u32 {
        self.hold.state().guards
    }

    /// Takes the lock once more for the same owner. Does not wait for those who wait for the lock.
    ///
    /// The hold count rises on the store, too. The lock is free when all guards of the hold are gone, in any order.
    ///
    /// Cancelling: safe. If the store has counted the reentry already, that is taken back in the background.
    pub async fn reenter(&self) -> Result<Self, Error> {
        let deepening = Deepening { term: self.term, patience: Patience::Endless, replicas: 0 };
        let again = engine::reenter(&self.engine, &self.hold, deepening);
        self.engine.shared.on_runtime(again).await.map(|guard| guard.file_with(&self.file))
    }

    /// Turns a write lock into a read lock, without a moment in which another writer could come between.
    ///
    /// Readers that wait are told. [`Error::Unsupported`] if this is not the guard of a write lock; it is given back then,
    /// as when the store does not answer.
    ///
    /// Cancelling: safe. Both are given back.
    pub async fn downgrade(self) -> Result<Self, Error> {
        let shared = &self.engine.shared;
        let replicas = self.hold.replicas_wanted();
        let read = shared.on_runtime(self.read_under(self.term, replicas)).await?;
        self.unlock().await?;
        Ok(read)
    }

    /// Takes the read lock for the owner of this write lock. What an owner that was named reads is one hold, as with
    /// threads: else it would be known to read by the last one only.
    pub(crate) async fn read_under(&self, term: Term, replicas: u32) -> Result<Self, Error> {
        let file = self.file.upgrade().filter(|_| self.hold.name.kind() == Kind::Write);
        let Some(file) = file else {
            return engine::read_under(&self.engine, &self.hold, term, replicas).await;
        };
        let lost = self.hold.until_lost();
        let _turn = tokio::select! {
            turn = file.turn.lock() => turn,
            reason = lost => return Err(Error::Lost { name: self.name().to_owned(), reason }),
        };
        if let Some(read) = file.valid_hold(Kind::Read) {
            let deepening = Deepening { term, patience: Patience::Endless, replicas };
            match engine::reenter(&self.engine, &read, deepening).await {
                // Ended meanwhile: then from the start.
                Err(Error::NotHeld { .. } | Error::Lost { .. }) => {}
                outcome => return outcome.map(|read| read.file_with(&self.file)),
            }
        }
        let read = engine::read_under(&self.engine, &self.hold, term, replicas).await?;
        Ok(read.file_with(&self.file))
    }

    /// Gives the lock back and waits until the store has confirmed it.
    ///
    /// [`Error::Lost`] means that the lock was not held any more. [`Error::InDoubt`] means that the store did not answer;
    /// the release goes on in the background until the lease ends.
    ///
    /// Cancelling: safe. The release goes on in the background.
    pub async fn unlock(mut self) -> Result<(), Error> {
        self.given_back = true;
        let shared = &self.engine.shared;
        shared.on_runtime(shared.give_back(Arc::clone(&self.hold), self.term)).await
    }

    /// Lets go of the guard and leaves the lock held for `time` from now on, without renewal and without this client.
    ///
    /// For work that is to be done once in a while by one of many: whoever comes before the time is over is refused, or
    /// waits, also when the work took a second and its program has ended.
    ///
    /// **Guarantee.** When this is `Ok`, the store has it that the lock is held by the same owner for `time` from the call
    /// on, and then free. What was left of the lease does not matter; it may have been longer or shorter. Who waits and was
    /// told of a longer lease is told. Where replicas were [asked for](crate::Lock::acknowledged_by), they have it as well.
    ///
    /// **Limits.** It ends on the store's clock, and later than `time` by as long as a request is on its way; a renewal whose
    /// connection broke and that is delivered late can make it last as long as that renewal said. Nobody has a guard for it:
    /// only [`force_unlock`](crate::Lock::force_unlock) ends it sooner. A write lock lasts as long as the reads under it, if
    /// they last longer.
    ///
    /// In these cases the lock is not kept but given back, as when the guard is dropped: [`Error::BadLease`] for a time that
    /// cannot be a lease, as one below 10 ms; [`Error::Unsupported`] when this is one of several guards of the hold, which
    /// could not all mean the same end, or the guard of permits without a lease; [`Error::Denied`] and [`Error::Corrupt`],
    /// when the store refuses. [`Error::Lost`] means that the lock was not held any more. [`Error::InDoubt`] means that the
    /// store, or enough replicas, did not answer; it goes on in the background as long as the lock can be held.
    ///
    /// Cancelling: safe. Once begun, it goes on in the background.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use std::time::Duration;
    ///
    /// let client = turnlock::Client::connect("memory://").await?;
    /// let report = client.lock("hourly-report");
    /// let guard = report.lock().await?;
    /// // … the work, which took less than an hour …
    /// guard.keep_for(Duration::from_secs(3600)).await?;
    /// assert!(report.try_lock().await?.is_none());
    /// # Ok::<(), turnlock::Error>(()) }).unwrap();
    /// ```
    pub async fn keep_for(mut self, time: Duration) -> Result<(), Error> {
        let shared = &self.engine.shared;
        // Refused: dropped, and thereby given back.
        let stay = shared.begin_stay(&self.hold, self.term, time)?;
        self.given_back = true;
        shared.on_runtime(shared.finish_stay(stay)).await
    }

    /// Writes down on the store since when this is held, for people who ask: see
    /// [`Identity::since_of`](crate::Identity::since_of). One small write, with what else the client says of itself.
    ///
    /// Of 64 holds at a time, the latest, until a client writes again after it has given them back. An error says that nothing
    /// was written; the lock is held all the same.
    ///
    /// Cancelling: safe. It may have been written or not.
    pub async fn announce(&self) -> Result<(), Error> {
        let shared = &self.engine.shared;
        shared.on_runtime(shared.announce(&self.hold)).await
    }

    /// Waits until the lock is lost, and says how. Not ready as long as it is held.
    ///
    /// Ready before another owner can get the lock from the store by the end of the lease; the time between is a hundredth
    /// of the lease and two milliseconds. That needs neither the runtime on which the client was made, which may be gone, nor
    /// timers on the one that polls this.
    ///
    /// When the lock is unlocked by force, or the store loses its data, this is ready as soon as that is known: at the next
    /// renewal at the latest. A [fixed lease](crate::Lock::lease) is not renewed but looked at, once in a third of it, or of the
    /// [watchdog's](crate::Builder::watchdog) lease if that is shorter. A renewal or a look that fails is repeated, ten times as
    /// often, until the end of the lease.
    ///
    /// Cancelling: safe, nothing is changed.
    pub async fn lost(&self) -> LostReason {
        self.hold.until_lost().await
    }

    /// Whether the lock is still held, as far as this process can know without asking: not lost, and the lease not over.
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Until when the lock is held if no further renewal is confirmed. Moves on with each renewal.
    ///
    /// Counted from before the last confirmed request was sent, less a safety margin. On a machine that may be suspended,
    /// ask again after waking, or use [`is_valid`](Guard::is_valid), which counts the time asleep.
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.hold.believed_until().since(clock::now())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.given_back {
            self.engine.shared.give_back_later(Arc::clone(&self.hold), self.term);
        }
    }
}
