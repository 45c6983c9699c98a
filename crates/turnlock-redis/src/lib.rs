//! Redis and Valkey as a store of turnlock's locks, in the wire format of Redisson.
//!
//! Each step is one call of a Lua script; its reply is decoded into a typed value. The parts, in the order of a call:
//!
//! | part | what it does |
//! |---|---|
//! | `store` | [`Redis`], the store: routes each call to the server that has its keys |
//! | `steps`, `script_call`, `lua/` | step and kind give a script, its keys and its arguments; the scripts |
//! | `lines` | batches of renewals: groups them into calls, and splits a call that fails |
//! | `cluster/` | the node of the slot; redirects; the slot map |
//! | `node` | one server: sends a call, and waits for replicas if they must acknowledge it |
//! | `connection/` | a connection for commands, which reconnects; concurrent steps share calls, each with its own outcome |
//! | `replicated` | calls that share a `WAIT`, on a connection of their own |
//! | `endpoint`, `sentinel/` | where a connection leads: to one address, or to the current master |
//! | `access`, `handshake`, `tls*` | a new stream: login, TLS, and what a failed handshake means |
//! | `resp`, `reply_slot` | the protocol of Redis; where the outcome of a request arrives |
//! | `reply`, `decode`, `failure` | the way back: replies, their meaning, and the meaning of errors |
//! | `pubsub/` | the channels of releases that have waiters |
//! | `directory`, `key_probe` | what operators need: finds locks, and keeps records of clients |
//! | `doctor/`, [`acl`] | also for operators: checks of the servers, and the rights that a user needs |
//! | `config/` | settings and URLs, checked before the first connection |

#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods)]

mod access;
pub mod acl;
mod cluster;
mod common;
mod config;
mod connection;
mod decode;
mod directory;
mod doctor;
mod endpoint;
mod failure;
mod handshake;
mod key_probe;
mod lines;
mod lua;
mod node;
mod pubsub;
mod replicated;
mod reply;
mod reply_slot;
mod resp;
mod script_call;
mod sentinel;
mod steps;
mod store;
mod sync;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(feature = "tls")]
mod tls_dialler;
#[cfg(feature = "tls")]
mod tls_error;

pub use access::{Access, Address, TlsDialler};
pub use config::{ClusterMessages, RedisSettings, RedisUrl, Servers, Target};
pub use store::Redis;
pub use tls::Tls;
