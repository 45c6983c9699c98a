/// What was left when [`Client::shutdown`](crate::Client::shutdown) returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "locks that are still held stay held until their leases end"]
pub struct ShutdownReport {
    /// Locks that guards still hold. They are no longer renewed, and expire.
    pub held: usize,
    /// Releases, and other requests in the background, that were not finished.
    pub unfinished: usize,
}

impl ShutdownReport {
    /// Returns `true` if nothing was left.
    pub fn is_clean(&self) -> bool {
        self.held == 0 && self.unfinished == 0
    }
}
