use smallvec::SmallVec;
use turnlock_core::{Lease, Moment};

use turnlock_store::Failure;

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
    /// The lease that a pending shortening leaves. Its request sets the lease, whatever was left of it.
    pub(crate) shortened_to: Option<Lease>,
    /// A shortening got no reply, so it may take effect at any time. Unlike other steps, a late one does harm: it
    /// takes time from a newer guard. So this stays `true` for the life of the hold.
    is_shortening_in_doubt: bool,
    /// The last shortening has failed. Renewals check whether the lease is still too long.
    pub(crate) shortening_failed: bool,
}

impl Leases {
    pub(crate) fn add(&mut self, lease_mode: LeaseMode, now: Moment) {
        match lease_mode {
            LeaseMode::Renewed(lease) => {
                self.renewed_guards += 1;
                self.renewal = Some(lease);
            }
            LeaseMode::Fixed(lease) => self.fixed.push((lease, now + lease.as_duration())),
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

    /// Records that a request is about to be sent that sets the lease to `lease`.
    pub(crate) fn begin_shortening(&mut self, lease: Lease) {
        let earlier = self.shortened_to.filter(|_| self.is_shortening_in_doubt);
        self.shortened_to = Some(earlier.map_or(lease, |earlier| lease.min(earlier)));
    }

    /// Ends the shortening: its request got a reply, or failed.
    pub(crate) fn end_shortening(&mut self, failure: Option<&Failure>) {
        self.shortening_failed = failure.is_some();
        self.is_shortening_in_doubt |= failure.is_some_and(|failure| failure.in_doubt.is_some());
        self.shortened_to.take_if(|_| !self.is_shortening_in_doubt);
    }
}
