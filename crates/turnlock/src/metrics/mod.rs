//! The metrics of a client, for a recorder of the crate `metrics`. With the feature `metrics`.
//!
//! Install a recorder before the first client is made, for example that of `metrics-exporter-prometheus`, and set
//! [buckets](SECONDS) for the histograms. [`METRICS`] lists what is recorded. The page "Monitoring" of the manual has the labels,
//! a dashboard and alert rules.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let client = turnlock::Client::builder()
//!     // "orders:42" counts as a lock of the group "orders". The name itself is never a label.
//!     .metrics_group(|name| name.split_once(':').map(|(group, _)| group))
//!     .connect("memory://")
//!     .await?;
//! # drop(client);
//! # Ok::<(), turnlock::Error>(()) }).unwrap();
//! ```
//!
//! # Cost
//!
//! Handles are looked up once for each kind and group of a client, and no key is built or hashed when a lock is used. With groups, the
//! group is looked up by its name, twice for each acquire that the store grants. Gauges and
//! the number of hand-overs are counted for each thread, and published once a second. Where a lock passes between waiters of one
//! client more than 16 times within a [hand-over window](crate::Builder::hand_over_window), every sixteenth of the further turns is
//! timed; all are counted.

#[cfg(feature = "metrics")]
mod catalogue;
#[cfg(feature = "metrics")]
mod client_metrics;
#[cfg(feature = "metrics")]
mod level;
#[cfg(feature = "metrics")]
mod lock_metrics;
#[cfg(feature = "metrics")]
mod metered_store;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod oldest;

#[cfg(feature = "metrics")]
pub use catalogue::{BATCH_SIZES, METRICS, Metric, MetricType, SECONDS};
#[cfg(feature = "metrics")]
pub(crate) use client_metrics::{ClientMetrics, Options};
#[cfg(feature = "metrics")]
pub(crate) use lock_metrics::{AcquireMetrics, HoldMetrics};
#[cfg(not(feature = "metrics"))]
pub(crate) use off::{AcquireMetrics, ClientMetrics, HoldMetrics, Options};

use turnlock_core::Kind;

/// Returns the word for a kind, as a label of metrics and a field of spans.
pub(crate) fn kind_label(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Spin => "spin",
        Kind::Fenced => "fenced",
        Kind::Fair => "fair",
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Plain => "plain",
        Kind::Semaphore => "semaphore",
        Kind::Permits => "permits",
        Kind::Latch => "latch",
    }
}

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    Granted,
    /// Passed on by another waiter of the client, without a request.
    HandedOver,
    /// Held, and the caller did not wait.
    Busy,
    /// Held until the end of the caller's wait.
    TimedOut,
    Failed,
    /// Dropped by its caller.
    Cancelled,
}

impl AcquireOutcome {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 6] =
        [Self::Granted, Self::HandedOver, Self::Busy, Self::TimedOut, Self::Failed, Self::Cancelled];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::HandedOver => "handed_over",
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How the renewal of a hold ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewalOutcome {
    /// The store has it: renewed or, with a fixed lease, checked.
    Confirmed,
    NotHeld,
    /// Unknown. It is retried until the lease ends.
    Failed,
}

#[cfg(feature = "metrics")]
impl RenewalOutcome {
    const ALL: [Self; 3] = [Self::Confirmed, Self::NotHeld, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::NotHeld => "not_held",
            Self::Failed => "failed",
        }
    }
}
