use rustix::process::Pid;
use rustix::process::Signal;

/// Stands in for the process tree on systems without `/proc`: it is always empty.
#[derive(Default)]
pub(crate) struct ProcessTree {}

#[allow(clippy::unused_self, reason = "the same signatures as on Linux")]
impl ProcessTree {
    pub(crate) fn scan(&mut self, _root: i32) -> usize {
        0
    }

    pub(crate) fn stop(&mut self, _root: Pid) {}

    pub(crate) fn signal(&self, _signal: Signal) {}

    pub(crate) fn is_alive(&self) -> bool {
        false
    }
}
