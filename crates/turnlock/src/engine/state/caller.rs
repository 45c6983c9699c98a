use turnlock_core::{LockName, Moment};

use super::call_site::CallSite;

/// A caller that waits: what it wants, since when, and how long.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) call_site: CallSite,
    pub(crate) began: Moment,
    /// The end of its wait limit, or never.
    pub(crate) ends: Moment,
    /// With the kind that it waits for.
    pub(crate) name: LockName,
    /// The number of the owner that it will hold as; 0 for permits, whose ids do not contain their client.
    pub(crate) owner: u64,
}
