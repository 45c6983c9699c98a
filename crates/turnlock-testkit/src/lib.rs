//! Support for the tests of turnlock: real Redis servers that a test may stop, pause and restart, a proxy that
//! breaks the network in chosen ways, and assertions that wait for something instead of sleeping.
//!
//! Everything here panics with a clear message when it cannot do its work, since a test has no better use for an
//! error than to fail with it.
//!
//! - [`RedisServer`] runs one `redis-server` process for one test and removes it afterwards.
//! - [`ServerProgram`] says which program that is: the installed one, or a fixed version of Redis or Valkey.
//! - [`Calls`] counts the commands such a server has run.
//! - [`ReplicaSet`], [`SentinelSet`], [`ClusterSet`] and [`TlsServer`] are the shapes in which people run such servers, and
//!   [`Shared`] lets many tests use one of them.
//! - [`FaultProxy`] stands between a client and a server and loses, delays or holds what they say.
//! - [`Redisson`], [`PyLock`] and [`NodeRedlock`] run other people's locks in processes that a test drives.
//! - [`TempDir`] is a directory that goes away with its test.
//! - [`trial`] is a case as libtest-mimic runs it, and [`run`] runs them. A case that failed with [`TooSlow`] while the whole
//!   machine stood still is run again, a few times in a run.
//! - [`Pauses`] measures for how long the machine stood still between two moments.
//! - [`eventually`], [`within`] and [`in_time`] fail by name, and with [`TooSlow`], when something takes too long.

// Panicking is how this crate reports; a section about it on each function would say nothing new.
#![allow(clippy::missing_panics_doc)]

mod calls;
mod clock_shim;
mod fault_proxy;
mod held;
mod interop;
mod lane;
mod link;
mod live;
mod login;
mod loss;
mod patience;
mod pauses;
mod port;
mod process;
mod reaper;
mod redis_server;
mod reruns;
mod rule;
mod server_plan;
mod server_program;
mod shapes;
mod shared;
mod standstill;
mod temp_dir;
mod too_slow;
mod trap;
mod trial;
mod wire;

pub use calls::Calls;
pub use fault_proxy::FaultProxy;
pub use interop::{Answer, NodeRedlock, PeerError, PeerThread, PyLock, Redisson};
pub use login::Login;
pub use patience::{eventually, in_time, within};
pub use pauses::Pauses;
pub use redis_server::RedisServer;
pub use server_program::ServerProgram;
pub use shapes::{Certificates, ClusterSet, ReplicaSet, SentinelSet, SlotMigration, TlsServer};
pub use shared::Shared;
pub use temp_dir::TempDir;
pub use too_slow::TooSlow;
pub use trial::{run, trial, void};
