//! Other people's locks, in programs that a test drives: what they are and what they understand is written in
//! `interop/README.md` at the root of the repository.

mod answer;
mod driver;
mod line;
mod node_redlock;
mod peer_error;
mod peer_thread;
mod py_lock;
mod redisson;
pub(crate) mod workshop;

pub use answer::Answer;
pub use node_redlock::NodeRedlock;
pub use peer_error::PeerError;
pub use peer_thread::PeerThread;
pub use py_lock::PyLock;
pub use redisson::Redisson;
