use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use turnlock_core::{LockName, Moment, OwnerId};

use super::deadlock_search::{DeadlockSearch, OwnDeadlock};
use super::engine::Engine;
use super::state::{Hold, OldestHolds, Wakeup};
use super::waiting::{Waiting, millis};
use crate::activity::{HoldRecord, MAX_WAITS, Reader, Record, label_of};
use crate::clock;
use turnlock_store::{ActivityRecord, Failure, FailureKind, StepReply};

/// How long a caller waits, or holds, before it is announced.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(1);

/// The longest time between two checks for what is to be announced, and the least time between two writes of changed waits,
/// unless tasks among them hold something.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// How often waits are written, unless they change.
const WAITS_PERIOD: Duration = Duration::from_secs(3);

/// How often the waits of tasks that hold something are written, since each write is a part of the proof of a deadlock:
/// in the first three seconds of a wait, and later.
const NEW_LINKED_PERIOD: Duration = Duration::from_millis(300);
const LINKED_PERIOD: Duration = Duration::from_millis(500);
const NEW_LINKED_FOR: Duration = Duration::from_secs(3);

/// How often holds are written while there are no waits.
const HOLDS_PERIOD: Duration = Duration::from_secs(20);

/// How long the store keeps a record with waits, and one without.
const WAITS_TTL: Duration = Duration::from_secs(10);
const HOLDS_TTL: Duration = Duration::from_secs(60);

/// The pause after a write that the store refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// How often holds are checked for those that are stuck.
const STUCK_PERIOD: Duration = Duration::from_secs(5);

/// How long the body of a run may be polled without a break before it counts as stuck.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// The number of waits that are examined for what their tasks hold.
const MAX_EXAMINED: usize = 256;

/// The part of the time that a client spends with looking at its waits and holds: a thirtieth, if there are very many.
const PAUSE_FACTOR: u32 = 30;

/// The longest pause for it. The process may have been stopped for hours meanwhile.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Announces the waits and holds of a client on the store, and looks for deadlocks and for holds that are stuck. Ends with
/// the engine.
///
/// No acquire waits for its requests, and none fails with it.
pub(super) async fn run(engine: Weak<Engine>) {
    let mut announcement = Announcement::default();
    let Some(key_prefix) = engine.upgrade().map(|engine| engine.settings.key_prefix.clone()) else { return };
    while let Some(strong) = engine.upgrade() {
        if strong.check_open().is_err() {
            return;
        }
        let (client, limit) = (strong.client, strong.settings.usual_limit());
        announcement.is_silent |= !strong.settings.announce_waits;
        let began = clock::now();
        let (planned, next) = announcement.plan(&strong, began);
        let mut busy = clock::now().since(began);
        let store = Arc::clone(&strong.store);
        let is_written = planned.as_ref().is_some_and(|planned| planned.record.is_some());
        if is_written {
            // Before the request, which may arrive at a client that is just shutting down.
            strong.is_announced.store(true, Ordering::SeqCst);
            // From here on, a shutdown removes the record. One that has begun may have removed it already.
            if strong.check_open().is_err() {
                return;
            }
        }
        // The engine may end during a request.
        drop(strong);
        if let Some(Planned { record, waits }) = planned {
            let is_linked = record.as_ref().is_some_and(|record| record.is_linked);
            let outcome = store.directory().write_activity(client, record, limit).await;
            let Some(strong) = engine.upgrade() else { return };
            match outcome {
                Ok(StepReply { value: Some(stamp), .. }) => {
                    strong.is_announced.fetch_and(is_written, Ordering::AcqRel);
                    announcement.confirm(&waits, stamp);
                }
                // The store keeps no records.
                Ok(StepReply { value: None, .. }) => announcement.is_silent = true,
                Err(failure) => announcement.note_failure(&failure),
            }
            drop(strong);
            if is_linked && announcement.search.is_due(began) {
                let reader = Reader { client, key_prefix: &key_prefix };
                let (deadlocks, spent) = announcement.search.run(&*store, limit, &reader, began).await;
                busy += spent;
                let Some(strong) = engine.upgrade() else { return };
                announcement.end_waits(&strong, &deadlocks);
            }
        }
        drop(store);
        let next = next.max(began + (busy * PAUSE_FACTOR).min(LONGEST_PAUSE));
        tokio::time::sleep(next.since(clock::now())).await;
    }
}

impl Engine {
    /// Removes the record of this client, if there is one. Called once nothing more is announced.
    pub(super) async fn remove_announcement(&self) {
        if self.is_announced.swap(false, Ordering::SeqCst) {
            let limit = self.settings.usual_limit();
            let outcome = self.store.directory().write_activity(self.client, None, limit).await;
            if let Err(failure) = outcome {
                tracing::debug!(%failure, "announced waits not removed, they expire");
            }
        }
    }
}

/// What a client has announced.
#[derive(Default)]
struct Announcement {
    /// The announced waits, by the address of their wake-up, which the weak reference keeps from being used again.
    waits: HashMap<usize, AnnouncedWait>,
    /// What the store has, as far as known.
    written: Written,
    /// When the record was last written or removed.
    written_at: Moment,
    /// When to check again for holds, while there are no waits.
    holds_due: Moment,
    /// When to check again for holds that are stuck.
    stuck_due: Moment,
    /// After a write that failed, nothing is written until then.
    paused_until: Moment,
    /// How many writes have failed since the last one that did not.
    failures: u32,
    /// The waits have changed since the last write.
    is_changed: bool,
    /// Nothing is written: that is the setting, or the store keeps no records.
    is_silent: bool,
    search: DeadlockSearch,
}

/// What is in the record of a client.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Written {
    /// There is no record.
    #[default]
    Nothing,
    Holds,
    /// Waits, and holds if there are any.
    Waits,
}

struct AnnouncedWait {
    wakeup: Weak<Wakeup>,
    /// The waiting task was found to run several futures. This does not end, since the others may go on unnoticed.
    is_concurrent: bool,
    /// What the waiting task holds, and whether it certainly does. If it changes, the proof begins again.
    holds: Vec<(HoldIdentity, bool)>,
    /// The stamps of the first and of the last acknowledged write while it waited with these holds.
    proven: Option<(u64, u64)>,
}

/// A write that is due.
struct Planned {
    record: Option<ActivityRecord>,
    /// The waits in it.
    waits: Vec<usize>,
}

impl Announcement {
    /// Decides what to write now, if anything, and when to check again.
    fn plan(&mut self, engine: &Engine, now: Moment) -> (Option<Planned>, Moment) {
        self.check_stuck(engine, now);
        if self.is_silent {
            return (None, self.stuck_due);
        }
        let (mut waits, next) = engine.wait_queues.waits_since(now - ANNOUNCED_AFTER);
        let next = next.map_or(now + CHECK_PERIOD, |began| began + ANNOUNCED_AFTER).min(now + CHECK_PERIOD);
        if now < self.paused_until {
            return (None, next);
        }
        if waits.is_empty() {
            self.waits.clear();
            let due = self.written_at + CHECK_PERIOD;
            if self.written == Written::Waits && is_before(now, due) {
                return (None, next.min(due));
            }
            return (self.plan_holds(engine, now), next);
        }
        let count = waits.len();
        // With very many waits, the oldest ones only.
        let began = |wakeup: &Arc<Wakeup>| wakeup.caller.as_ref().map(|caller| (caller.began, caller.owner));
        if count > MAX_EXAMINED {
            waits.select_nth_unstable_by_key(MAX_EXAMINED, began);
            waits.truncate(MAX_EXAMINED);
        }
        let callers = waits.iter().filter_map(|wakeup| wakeup.caller.as_ref());
        let links = callers.flat_map(|caller| caller.call_site.links()).flatten().collect();
        let (linked, oldest) = engine.wait_queues.holds_of(&links, now - ANNOUNCED_AFTER);
        let mut waits: Vec<_> = waits.iter().filter_map(|wakeup| Waiting::new(wakeup, &linked)).collect();
        Waiting::find_concurrent(&mut waits, engine);
        waits.sort_by_key(|wait| (!wait.is_linked(), wait.caller.began, wait.caller.owner));
        let newest_linked = waits.iter().filter(|wait| wait.is_linked()).map(|wait| wait.caller.began).max();
        let period = match newest_linked {
            Some(began) if now < began + NEW_LINKED_FOR => self.linked_period(NEW_LINKED_PERIOD),
            Some(_) => self.linked_period(LINKED_PERIOD),
            None => WAITS_PERIOD,
        };
        let next = if newest_linked.is_some() { next.min(now + period) } else { next };
        self.update(&mut waits);
        let is_changed = self.is_changed || self.written != Written::Waits;
        let due = self.written_at + if is_changed { period.min(CHECK_PERIOD) } else { period };
        if is_before(now, due) {
            return (None, next.min(due));
        }
        let record = Record {
            more_waits: u64::try_from(count.saturating_sub(MAX_WAITS)).unwrap_or(u64::MAX),
            waits: waits
                .iter()
                .take(MAX_WAITS)
                .map(|wait| wait.record(engine, self.proof_of(wait), now))
                .collect(),
            ..record_of(engine, &oldest, now)
        };
        (self.written, self.written_at, self.is_changed) = (Written::Waits, now, false);
        let written = waits.iter().take(MAX_WAITS).map(Waiting::key).collect();
        let record =
            ActivityRecord { text: record.to_text(), is_linked: newest_linked.is_some(), lasts: WAITS_TTL };
        (Some(Planned { record: Some(record), waits: written }), next)
    }

    /// Returns the time between two writes. A record must not expire between them.
    fn linked_period(&self, shortest: Duration) -> Duration {
        self.search.period().clamp(shortest, WAITS_PERIOD)
    }

    /// Logs the names with holds that are stuck, each once.
    fn check_stuck(&mut self, engine: &Engine, now: Moment) {
        if now < self.stuck_due {
            return;
        }
        self.stuck_due = now + STUCK_PERIOD;
        let mut stuck = Vec::new();
        engine.wait_queues.for_each_hold_in_portions(|hold| {
            stuck.extend(stuck_reason(engine, hold, now).map(|reason| (Arc::clone(hold), reason)));
        });
        stuck.retain(|(hold, _)| hold.is_valid());
        let is_known = |hold: &Hold| hold.is_reported_stuck.load(Ordering::Relaxed);
        let known = stuck.iter().filter(|(hold, _)| is_known(hold)).map(|(hold, _)| hold.name.clone());
        let known: HashSet<_> = known.collect();
        stuck.retain(|(hold, _)| !is_known(hold));
        if !stuck.is_empty() {
            // They are announced at once.
            self.holds_due = now;
        }
        for (hold, _) in &stuck {
            hold.is_reported_stuck.store(true, Ordering::Relaxed);
        }
        // One line for each name, while one of its holds is stuck: the permits of a semaphore can be many.
        stuck.retain(|(hold, _)| !known.contains(&hold.name));
        stuck.sort_by(|(one, _), (other, _)| {
            (one.name.key(), one.began).cmp(&(other.name.key(), other.began))
        });
        for of_name in stuck.chunk_by(|(one, _), (other, _)| one.name.key() == other.name.key()) {
            let (hold, reason) = &of_name[0];
            let held_at = hold.call_site.map(tracing::field::display);
            let others = of_name.len() - 1;
            tracing::warn!(
                name = %hold.name, owner = %hold.owner, held_for = ?now.since(hold.began), held_at, reason, others,
                "a lock is held, and its holder seems to be stuck"
            );
        }
    }

    /// Decides what to write while there are no waits.
    fn plan_holds(&mut self, engine: &Engine, now: Moment) -> Option<Planned> {
        if now < self.holds_due && self.written != Written::Waits {
            return None;
        }
        let (_, oldest) = engine.wait_queues.holds_of(&HashSet::new(), now - ANNOUNCED_AFTER);
        let record = record_of(engine, &oldest, now);
        if record.holds.is_empty() {
            self.holds_due = now;
            let had_record = mem::take(&mut self.written) != Written::Nothing;
            return had_record.then(|| {
                self.written_at = now;
                Planned { record: None, waits: Vec::new() }
            });
        }
        (self.written, self.written_at) = (Written::Holds, now);
        self.holds_due = now + HOLDS_PERIOD;
        let record = ActivityRecord { text: record.to_text(), is_linked: false, lasts: HOLDS_TTL };
        Some(Planned { record: Some(record), waits: Vec::new() })
    }

    /// Remembers the current waits, and whether they are those of the last call. Marks the holds of concurrent tasks.
    fn update(&mut self, waits: &mut [Waiting<'_>]) {
        let current: HashSet<_> = waits.iter().map(Waiting::key).collect();
        let before = self.waits.len();
        self.waits.retain(|key, _| current.contains(key));
        self.is_changed |= self.waits.len() < before;
        for wait in waits {
            let is_new = !self.waits.contains_key(&wait.key());
            let known = self.waits.entry(wait.key()).or_insert_with(|| AnnouncedWait {
                wakeup: Arc::downgrade(wait.wakeup),
                is_concurrent: false,
                holds: Vec::new(),
                proven: None,
            });
            known.is_concurrent |= wait.is_concurrent;
            if known.is_concurrent {
                wait.held.iter_mut().for_each(|(_, is_exact)| *is_exact = false);
            }
            let holds: Vec<_> =
                wait.held.iter().map(|(hold, is_exact)| (identity_of(hold), *is_exact)).collect();
            if is_new || known.holds != holds {
                (known.holds, known.proven) = (holds, None);
                self.is_changed = true;
            }
        }
    }

    fn proof_of(&self, wait: &Waiting<'_>) -> Option<(u64, u64)> {
        self.waits.get(&wait.key()).and_then(|known| known.proven)
    }

    /// Records that the store has acknowledged a write with these waits, which it executed at `stamp`.
    fn confirm(&mut self, waits: &[usize], stamp: Moment) {
        self.failures = 0;
        let stamp = stamp.as_micros();
        for wait in waits {
            if let Some(known) = self.waits.get_mut(wait) {
                // If the clock of the store was set back, the proof begins again.
                let first = known.proven.map(|(first, _)| first).filter(|first| *first <= stamp);
                known.proven = Some((first.unwrap_or(stamp), stamp));
            }
        }
    }

    fn note_failure(&mut self, failure: &Failure) {
        tracing::debug!(%failure, "waits not announced");
        // It is not known what the store has: a record that was to be removed may be there.
        self.written = Written::Waits;
        self.failures = self.failures.saturating_add(1);
        let is_refused = matches!(failure.kind, FailureKind::Denied(_) | FailureKind::Unsupported(_));
        let pause = (CHECK_PERIOD * self.failures.min(10)).min(LONGEST_PAUSE);
        self.paused_until = clock::now() + if is_refused { REFUSED_PAUSE } else { pause };
    }

    /// Ends the waits of this client that end a deadlock.
    fn end_waits(&self, engine: &Engine, deadlocks: &[OwnDeadlock]) {
        for (owner, text) in deadlocks.iter().filter_map(OwnDeadlock::ended_wait) {
            let callers = self.waits.values().filter_map(|known| known.wakeup.upgrade());
            let is_it = |wakeup: &Arc<Wakeup>| {
                let caller = wakeup.caller.as_ref();
                caller.is_some_and(|caller| engine.client.owner(caller.owner).as_str() == owner)
            };
            callers.filter(is_it).for_each(|wakeup| wakeup.set_deadlock(text));
        }
    }
}

/// Returns `true` if `due` is still to come. A timer may fire a moment too early.
fn is_before(now: Moment, due: Moment) -> bool {
    now + Duration::from_millis(5) < due
}

/// Returns why the holder of a lock seems to be stuck, if it does.
fn stuck_reason(engine: &Engine, hold: &Hold, now: Moment) -> Option<&'static str> {
    if hold.polled_for(now).is_some_and(|polled| polled >= LONGEST_POLL) {
        return Some("its task blocks its thread");
    }
    let is_unusual = engine.wait_queues.durations.is_unusual(&hold.name, now.since(hold.began));
    is_unusual.then_some("it is held far longer than before")
}

/// What identifies a hold: a hand-over does not change its owner.
type HoldIdentity = (LockName, OwnerId, Moment);

fn identity_of(hold: &Hold) -> HoldIdentity {
    (hold.name.clone(), hold.owner.clone(), hold.began)
}

/// Returns the record of a client without waits: itself, and its oldest holds.
fn record_of(engine: &Engine, oldest: &OldestHolds, now: Moment) -> Record {
    let identity = engine.client_record.identity();
    let shows_call_site = engine.settings.announce_call_sites;
    let hold_record = |hold: &Arc<Hold>| HoldRecord {
        key: hold.name.key().to_owned(),
        kind: label_of(hold.name.kind()),
        owner: hold.owner.to_string(),
        held_ms: millis(now.since(hold.began)),
        stuck: stuck_reason(engine, hold, now).is_some(),
        task: hold.call_site.and_then(|call_site| call_site.task()),
        at: hold.call_site.filter(|_| shows_call_site).map(|call_site| call_site.to_string()),
    };
    Record {
        host: identity.host.clone(),
        pid: identity.pid,
        label: identity.label.clone(),
        fails: engine.settings.fail_on_deadlock,
        holds: oldest.holds.values().map(hold_record).collect(),
        more_holds: u64::try_from(oldest.count - oldest.holds.len()).unwrap_or(u64::MAX),
        ..Record::default()
    }
}
