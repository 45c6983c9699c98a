//! Support for the tests of turnlock: real Redis servers, a fault-injecting proxy, and assertions that wait.
//!
//! Everything here panics with a clear message if it fails, since a test would do the same with an error.
//!
//! - [`RedisServer`] runs one `redis-server` process for one test. The test can stop, pause and restart it.
//! - [`ServerProgram`] selects the program: the installed one, or a fixed version of Redis or Valkey.
//! - [`Calls`] counts the commands that a server has run.
//! - [`ReplicaSet`], [`SentinelSet`], [`ClusterSet`] and [`TlsServer`] are deployments of several servers or
//!   with TLS. [`Shared`] lets many tests use one of them.
//! - [`FaultProxy`] is a TCP proxy that loses, delays or holds requests and replies.
//! - [`Redisson`], [`PyLock`] and [`NodeRedlock`] run other lock libraries in processes that a test drives.
//! - [`TempDir`] is a temporary directory.
//! - [`trial`] makes a case a trial of libtest-mimic, and [`run`] runs the trials. A case that fails with
//!   [`TimedOut`] while the whole machine stalls is run again, a few times in a run.
//! - [`StallMonitor`] measures how long the machine stalled between two instants.
//! - [`eventually`], [`within`] and [`in_time`] panic with a description, and with [`TimedOut`], when a limit
//!   passes.

// Panicking is how this crate reports errors: a `# Panics` section on each function would add nothing.
#![allow(clippy::missing_panics_doc)]

mod calls;
mod clock_shim;
mod connected_client;
mod delay_queue;
mod deployments;
mod error_chain;
mod fault_proxy;
mod fault_trigger;
mod held_request;
mod interop;
mod login;
mod port;
mod process;
mod proxy_connection;
mod proxy_state;
mod reaper;
mod redis_server;
mod reply_loss;
mod reruns;
mod server_config;
mod server_program;
mod shared;
mod socket;
mod stall_monitor;
mod stalls;
mod temp_dir;
mod timed_out;
mod trial;
mod wait;

pub use calls::Calls;
pub use deployments::{Certificates, ClusterSet, ReplicaSet, SentinelSet, SlotMigration, TlsServer};
pub use error_chain::error_chain;
pub use fault_proxy::FaultProxy;
pub use interop::{NodeRedlock, PeerError, PeerThread, PendingReply, PyLock, Redisson};
pub use login::Login;
pub use redis_server::RedisServer;
pub use server_program::ServerProgram;
pub use shared::Shared;
pub use stall_monitor::StallMonitor;
pub use temp_dir::TempDir;
pub use timed_out::TimedOut;
pub use trial::{record_repeat, run, trial};
pub use wait::{eventually, in_time, within};
