//! Tests of turnlock's stores: the conformance suite for any store, and support for the tests of turnlock itself.
//!
//! Everything here panics with a clear message if it fails, since a test would do the same with an error.
//!
//! - `conformance` is the suite that every store must pass. It needs the feature `conformance`.
//! - `RedisServer`, `FaultProxy` and others are for tests against Redis. They need the feature `servers`, a default.
//! - `schedules` runs a unit test under many schedules of its threads. It needs the feature `schedules`.
//! - `LogSubscriber` receives what turnlock logs. It needs the feature `servers`.
//! - [`TempDir`] is a temporary directory. [`Shared`] is a value that many tests use.
//! - [`trial`] makes a case a trial of libtest-mimic, and [`run`] runs the trials. A case that fails with
//!   [`TimedOut`] while the whole machine stalls is run again, a few times in a run.
//! - [`StallMonitor`] measures how long the machine stalled between two instants.
//! - [`eventually`], [`eventually_some`], [`within`] and [`in_time`] panic with a description, and with [`TimedOut`], when a limit
//!   passes.
//!
//! The interface may change with every version before 1.0.

// Panicking is how this crate reports errors: a `# Panics` section on each function would add nothing.
#![allow(clippy::missing_panics_doc)]
#![forbid(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "servers")]
mod log_lines;
mod reruns;
#[cfg(feature = "schedules")]
pub mod schedules;
#[cfg(feature = "servers")]
mod servers;
mod shared;
mod stall_monitor;
mod stalls;
mod temp_dir;
mod trial;
mod wait;

#[cfg(feature = "servers")]
pub use log_lines::{LogLine, LogSubscriber};
#[cfg(feature = "servers")]
pub use servers::*;
pub use shared::Shared;
pub use stall_monitor::StallMonitor;
pub use temp_dir::TempDir;
pub use trial::{record_repeat, run, trial};
pub use turnlock_core::error_chain;
pub use wait::{TimedOut, eventually, eventually_some, in_time, within};
