//! Several locks as one, over the public [`Lock`](crate::Lock).
//!
//! ```text
//! GroupLock<P>                 the handle: lock(), try_lock(), run(), …
//!   MultiLock = GroupLock<All>         all members: one round after the other, in order of their keys
//!   RedLock = GroupLock<Majority>      a majority of independent servers: a `round` of requests counts their replies
//!     -> MultiGuard -> MultiHeld       the guards of the members, and how many of them are needed
//! ```

mod all;
mod group_lock;
mod majority;
mod multi_guard;
mod multi_held;
mod round;

pub use all::{All, MultiLock};
pub use group_lock::GroupLock;
pub(crate) use group_lock::Policy;
pub use majority::{Majority, RedLock};
pub use multi_guard::MultiGuard;
pub use multi_held::{LostMember, MultiHeld};
