use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::arrival::Delivery;
use super::common::Common;
use super::lane::Lane;
use super::link::{Link, Purpose};
use super::place::Place;

/// The [lanes](Lane) of a server. For each number of replicas that somebody asked for there is one for those who want a
/// hold, and one for what prolongs holds: a renewal has to be acknowledged before its lease ends, however many acquires
/// there are. Each is made when it is first needed.
pub(super) struct Lanes {
    common: Arc<Common>,
    place: Place,
    /// By the number of replicas, and whether it is for what prolongs holds.
    by_use: Mutex<BTreeMap<(u32, bool), Arc<Lane>>>,
}

impl Lanes {
    pub(super) fn new(common: &Arc<Common>, place: &Place) -> Self {
        Self { common: Arc::clone(common), place: place.clone(), by_use: Mutex::default() }
    }

    /// The lane for what must be acknowledged by replicas.
    pub(super) fn of(&self, Delivery { replicas, prolongs, .. }: Delivery) -> Arc<Lane> {
        let mut lanes = self.by_use.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = || {
            let link = Link::new(&self.common, self.place.clone(), Purpose::Beside);
            Arc::new(Lane::new(link, replicas))
        };
        Arc::clone(lanes.entry((replicas, prolongs)).or_insert_with(lane))
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.by_use.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Lanes").field(&lanes.keys()).finish()
    }
}
