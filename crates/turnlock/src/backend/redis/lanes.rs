use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::common::Common;
use super::lane::Lane;
use super::link::{Link, Purpose};
use super::place::Place;

/// The [lanes](Lane) of a server, one for each number of replicas that somebody asked for. Each is made when it is first
/// needed.
pub(super) struct Lanes {
    common: Arc<Common>,
    place: Place,
    by_number: Mutex<BTreeMap<u32, Arc<Lane>>>,
}

impl Lanes {
    pub(super) fn new(common: &Arc<Common>, place: &Place) -> Self {
        Self { common: Arc::clone(common), place: place.clone(), by_number: Mutex::default() }
    }

    /// The lane for what must be acknowledged by so many replicas.
    pub(super) fn for_replicas(&self, replicas: u32) -> Arc<Lane> {
        let mut lanes = self.by_number.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = || {
            let link = Link::new(&self.common, self.place.clone(), Purpose::Beside);
            Arc::new(Lane::new(link, replicas))
        };
        Arc::clone(lanes.entry(replicas).or_insert_with(lane))
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes = self.by_number.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Lanes").field(&lanes.keys()).finish()
    }
}
