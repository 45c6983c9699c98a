use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::metrics::{Counter, Histogram, Label, counter, histogram};
use parking_lot::{Mutex, RwLock};
use turnlock_core::{Kind, LockName, Moment};
use turnlock_store::Store;

use super::catalogue::{self, CALL_BATCH, MESSAGES, RECONNECTS, RENEWAL_BATCH};
use super::kind_label;
use super::lock_metrics::{AcquireMetrics, HoldMetrics, LockMetrics};
use super::metered_store::MeteredStore;

/// The number of groups of a process, which has one recorder. Names of further groups count in the group [`OTHER`].
const MAX_GROUPS: usize = 64;

/// The group of the names whose groups are too many.
const OTHER: &str = "other";

/// The longest label of a group, in bytes. A longer one counts in [`OTHER`].
const MAX_GROUP_LENGTH: usize = 128;

/// The time between two publications of what is not published when it changes.
const PUBLISH_PERIOD: Duration = Duration::from_secs(1);

type Group = dyn Fn(&str) -> Option<&str> + Send + Sync;

/// What the metrics of a client need to know: its store, and how names are grouped.
#[derive(Clone, Default)]
pub(crate) struct Options {
    store: &'static str,
    group: Option<Arc<Group>>,
}

impl Options {
    pub(crate) fn with_group(self, group: impl Fn(&str) -> Option<&str> + Send + Sync + 'static) -> Self {
        Self { group: Some(Arc::new(group)), ..self }
    }

    /// For a store of this URL scheme.
    pub(crate) fn for_store(self, store: &'static str) -> Self {
        Self { store, ..self }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The handles of one kind each, made when they are first used.
type Kinds = [OnceLock<Arc<LockMetrics>>; Kind::ALL.len()];

/// The metrics of one client.
pub(crate) struct ClientMetrics {
    options: Options,
    ungrouped: Kinds,
    /// In order of their first use. They are not removed, so that an acquire can borrow its handles.
    groups: [OnceLock<Box<Kinds>>; MAX_GROUPS + 1],
    group_indices: RwLock<HashMap<Box<str>, usize>>,
    renewal_batch: Histogram,
    call_batch: Histogram,
    reconnects: Counter,
    /// By whether the client uses the name.
    messages: [Counter; 2],
    next_publication: Mutex<Moment>,
}

impl ClientMetrics {
    pub(crate) fn new(options: &Options) -> Self {
        catalogue::describe();
        let store = options.store;
        let messages = ["false", "true"].map(|used| counter!(MESSAGES, "store" => store, "used" => used));
        Self {
            options: options.clone(),
            ungrouped: Kinds::default(),
            groups: [const { OnceLock::new() }; MAX_GROUPS + 1],
            group_indices: RwLock::default(),
            renewal_batch: histogram!(RENEWAL_BATCH, "store" => store),
            call_batch: histogram!(CALL_BATCH, "store" => store),
            reconnects: counter!(RECONNECTS, "store" => store),
            messages,
            next_publication: Mutex::default(),
        }
    }

    /// Returns the store with a count of its calls.
    pub(crate) fn meter(options: &Options, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(MeteredStore::new(store, options.store))
    }

    /// Counts an acquire.
    pub(crate) fn begin_acquire(&self, name: &LockName) -> AcquireMetrics<'_> {
        AcquireMetrics::begin(self.of(name))
    }

    /// Counts a hold that the store granted.
    pub(crate) fn begin_hold(&self, name: &LockName) -> HoldMetrics {
        HoldMetrics::begin(Arc::clone(self.of(name)))
    }

    /// Returns the handles for a lock.
    fn of(&self, name: &LockName) -> &Arc<LockMetrics> {
        let kind = name.kind();
        let group = self.options.group.as_ref().and_then(|group| group(name.as_str()));
        match group.filter(|group| !group.is_empty()) {
            None => self.of_kind(&self.ungrouped, kind, None),
            Some(group) => self.of_group(group, kind),
        }
    }

    fn of_group(&self, group: &str, kind: Kind) -> &Arc<LockMetrics> {
        let known = |group| self.group_indices.read().get(group).map(|&index| (group, index));
        let (group, index) = known(group).unwrap_or_else(|| {
            let group = bounded(group);
            known(group).unwrap_or_else(|| {
                let mut indices = self.group_indices.write();
                let next = indices.len();
                (group, *indices.entry(group.into()).or_insert(next))
            })
        });
        self.of_kind(self.groups[index].get_or_init(Box::default), kind, Some(group))
    }

    fn of_kind<'a>(&self, kinds: &'a Kinds, kind: Kind, group: Option<&str>) -> &'a Arc<LockMetrics> {
        kinds[kind as usize].get_or_init(|| {
            let group = group.map(|group| Label::new("group", group.to_owned()));
            let kind = Label::from_static_parts("kind", kind_label(kind));
            let store = Label::from_static_parts("store", self.options.store);
            Arc::new(LockMetrics::new([kind, store].into_iter().chain(group).collect()))
        })
    }

    pub(crate) fn count_renewal_batch(&self, holds: usize) {
        self.renewal_batch.record(u32::try_from(holds).unwrap_or(u32::MAX));
    }

    pub(crate) fn count_call_batch(&self, steps: usize) {
        self.call_batch.record(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    pub(crate) fn count_message(&self, is_used: bool) {
        self.messages[usize::from(is_used)].increment(1);
    }

    pub(crate) fn count_reconnect(&self) {
        self.reconnects.increment(1);
    }

    /// Publishes what is not published when it changes, at most once a second.
    pub(crate) fn publish(&self, now: Moment, renewal_period: Duration) {
        let mut next = self.next_publication.lock();
        if now < *next {
            return;
        }
        *next = now + PUBLISH_PERIOD;
        let publish = |kinds: &Kinds| {
            kinds.iter().filter_map(OnceLock::get).for_each(|lock| lock.publish(now, renewal_period));
        };
        publish(&self.ungrouped);
        self.groups.iter().filter_map(OnceLock::get).for_each(|kinds| publish(kinds));
    }
}

impl fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientMetrics").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the group, or [`OTHER`] if the process has too many.
fn bounded(group: &str) -> &str {
    static ALL: RwLock<BTreeSet<Box<str>>> = RwLock::new(BTreeSet::new());
    let has_room = |all: &BTreeSet<_>| all.len() < MAX_GROUPS || all.contains(group);
    if group.len() > MAX_GROUP_LENGTH || !has_room(&ALL.read()) {
        return OTHER;
    }
    let mut all = ALL.write();
    if has_room(&all) {
        all.insert(group.into());
        return group;
    }
    OTHER
}
