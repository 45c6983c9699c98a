use smallvec::SmallVec;
use turnlock_core::{Lease, Moment};

use crate::clock;

/// How the lease of a hold ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseMode {
    /// Renewed by the watchdog while the guard lives.
    Renewed(Lease),
    /// Not renewed: expires.
    Fixed(Lease),
}

impl LeaseMode {
    pub(crate) fn lease(self) -> Lease {
        match self {
            Self::Renewed(lease) | Self::Fixed(lease) => lease,
        }
    }
}

/// The leases of the live guards of one hold, and of a request that may shorten the hold's own.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The number of live guards that are renewed.
    renewed_guards: u32,
    /// The lease for renewals, while there is a guard that is renewed.
    pub(crate) renewal: Option<Lease>,
    /// The live guards with a fixed lease: the lease, and its latest end on the store.
    fixed: SmallVec<[(Lease, Moment); 1]>,
    shortening: Option<Shortening>,
    /// The last shortening has failed. Renewals check whether the lease is still too long.
    pub(crate) shortening_failed: bool,
}

/// A request that sets the lease of a hold, whatever was left of it.
#[derive(Clone, Copy, Debug)]
struct Shortening {
    lease: Lease,
    /// It got no reply, so it may take effect at any time. Unlike other steps, a late one does harm: it takes
    /// time from a newer guard. So this stays `true` for the life of the hold.
    is_in_doubt: bool,
}

impl Leases {
    /// The leases of a hold with one guard.
    pub(crate) fn new(lease_mode: LeaseMode) -> Self {
        let mut leases = Self::default();
        leases.add(lease_mode);
        leases
    }

    pub(crate) fn add(&mut self, lease_mode: LeaseMode) {
        match lease_mode {
            LeaseMode::Renewed(lease) => {
                self.renewed_guards += 1;
                self.renewal = Some(lease);
            }
            LeaseMode::Fixed(lease) => self.fixed.push((lease, clock::now() + lease.as_duration())),
        }
    }

    pub(crate) fn remove(&mut self, lease_mode: LeaseMode) {
        match lease_mode {
            LeaseMode::Renewed(_) => self.renewed_guards -= 1,
            LeaseMode::Fixed(lease) => {
                // With several equal leases, removes the oldest entry, so that the rest errs on the long
                // side.
                let index = self.fixed.iter().position(|(fixed, _)| *fixed == lease);
                index.map(|index| self.fixed.remove(index));
            }
        }
        if self.renewed_guards == 0 {
            self.renewal = None;
        }
    }

    /// How long the live guards need the hold, from now on. `None` if no guard needs it.
    pub(crate) fn needed(&self, now: Moment, renews: bool) -> Option<Lease> {
        let rest = self.fixed.iter().map(|(_, end)| end.since(now)).max();
        let fixed = rest.and_then(|rest| Lease::new(rest).ok());
        self.renewal.filter(|_| renews).max(fixed)
    }

    /// The longest fixed lease of the live guards.
    pub(crate) fn longest_fixed(&self) -> Option<Lease> {
        self.fixed.iter().map(|(lease, _)| *lease).max()
    }

    /// The lease that a pending shortening leaves.
    pub(crate) fn shortened_to(&self) -> Option<Lease> {
        self.shortening.map(|shortening| shortening.lease)
    }

    /// Records that a request is about to be sent that sets the lease to `lease`.
    pub(crate) fn begin_shortening(&mut self, lease: Lease) {
        let earlier = self.shortening.filter(|earlier| earlier.is_in_doubt);
        self.shortening = Some(Shortening {
            lease: earlier.map_or(lease, |earlier| lease.min(earlier.lease)),
            is_in_doubt: earlier.is_some(),
        });
    }

    /// Ends the shortening: its request got a reply, or is in doubt.
    pub(crate) fn end_shortening(&mut self, is_in_doubt: bool) {
        self.shortening = self.shortening.and_then(|shortening| {
            let is_in_doubt = is_in_doubt || shortening.is_in_doubt;
            is_in_doubt.then_some(Shortening { is_in_doubt, ..shortening })
        });
    }
}
