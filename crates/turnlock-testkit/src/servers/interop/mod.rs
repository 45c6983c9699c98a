//! Other lock libraries, in programs that a test drives. `interop/README.md` at the root of the repository
//! describes the programs and their protocol.

mod driver;
mod driver_pipe;
mod node_redlock;
mod peer;
mod py_lock;
mod redisson;

pub use node_redlock::NodeRedlock;
pub use peer::{PeerError, PeerThread, PendingReply};
pub use py_lock::PyLock;
pub use redisson::Redisson;
