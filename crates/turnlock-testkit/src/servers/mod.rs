//! Redis servers, a fault-injecting proxy, and other lock libraries, for the tests of turnlock itself.
//!
//! - [`RedisServer`] runs one `redis-server` process for one test. The test can stop, pause and restart it.
//! - [`ServerProgram`] selects the program: the installed one, or a fixed version of Redis or Valkey.
//! - [`Calls`] counts the commands that a server has run.
//! - [`ReplicaSet`], [`SentinelSet`], [`ClusterSet`] and [`TlsServer`] are deployments of several servers or
//!   with TLS. [`Shared`](crate::Shared) lets many tests use one of them.
//! - [`FaultProxy`] is a TCP proxy that loses, delays or holds requests and replies. [`Front`] has one for each source of
//!   connections.
//! - [`NetworkNamespace`] has processes whose packets are lost while its link is down.
//! - [`Redisson`], [`PyLock`] and [`NodeRedlock`] run other lock libraries in processes that a test drives.

mod build_cache;
mod calls;
mod clock_shim;
mod connected_client;
mod delay_queue;
mod deployments;
mod fault_proxy;
mod fault_trigger;
mod front;
mod held_request;
mod interop;
mod login;
mod network_namespace;
mod process;
mod proxy_connection;
mod proxy_state;
mod redis_server;
mod server_config;
mod server_program;
mod socket;
mod socket_owner;

pub use calls::Calls;
pub use deployments::{Certificates, ClusterSet, ReplicaSet, SentinelSet, SlotMigration, TlsServer};
pub use fault_proxy::FaultProxy;
pub use front::{Front, Minority};
pub use interop::{NodeRedlock, PeerError, PeerThread, PendingReply, PyLock, Redisson};
pub use login::Login;
pub use network_namespace::NetworkNamespace;
pub use redis_server::RedisServer;
pub use server_program::ServerProgram;
