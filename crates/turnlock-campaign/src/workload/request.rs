use crate::history::{Mode, Wait};

/// One way to acquire a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) lock: usize,
    /// Another lock, which is acquired together with the first.
    pub(super) also: Option<usize>,
    pub(super) mode: Mode,
    pub(super) permits: u32,
    pub(super) wait: Wait,
    pub(super) lease_ms: Option<u64>,
    pub(super) owner_number: Option<usize>,
}
