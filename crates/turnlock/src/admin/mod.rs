//! For operators: what is on a store, who holds it, and whether the store is safe.
//!
//! ```text
//! Client::inspect, Client::find    -> Inspection, Found       the state of one name, or of all that match a pattern
//! Client::identities               -> Identity                host, process and label of a client
//! Client::doctor                   -> doctor::Report          checks of a server, as pure functions of what was read
//! acl                                                         the permissions that a user of Redis needs
//! ```

#[cfg(feature = "redis")]
pub mod acl;
pub mod doctor;
mod found;
mod inspection;

pub use found::Found;
pub use inspection::{Holder, Inspection, Role};
