use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// A metric that a client records.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub metric_type: MetricType,
    /// The names of its labels. `group` is absent without a [group](crate::Builder::metrics_group).
    pub labels: &'static [&'static str],
    /// What it counts or measures.
    pub description: &'static str,
}

/// The type of a [`Metric`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricType {
    /// A number that rises.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Buckets for the histograms whose names end in `_seconds`: 100 µs to 10 minutes.
pub const SECONDS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0,
];

/// Buckets for the histograms of batches: at most 256 holds, or 32 steps.
pub const BATCH_SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

pub(super) const ACQUISITIONS: &str = "turnlock_acquisitions_total";
pub(super) const WAIT: &str = "turnlock_wait_seconds";
pub(super) const HOLD: &str = "turnlock_hold_seconds";
pub(super) const WAITERS: &str = "turnlock_waiters";
pub(super) const HOLDS: &str = "turnlock_holds";
pub(super) const OLDEST_HOLD: &str = "turnlock_oldest_hold_seconds";
pub(super) const LOST: &str = "turnlock_lost_total";
pub(super) const RENEWALS: &str = "turnlock_renewals_total";
pub(super) const RENEWAL_BATCH: &str = "turnlock_renewal_batch_holds";
pub(super) const CALL_BATCH: &str = "turnlock_call_batch_steps";
pub(super) const STORE_CALLS: &str = "turnlock_store_calls_total";
pub(super) const STORE_CALL: &str = "turnlock_store_call_seconds";
pub(super) const REPLICA_ACKNOWLEDGEMENTS: &str = "turnlock_replica_acknowledgements_total";
pub(super) const RECONNECTS: &str = "turnlock_reconnects_total";
pub(super) const MESSAGES: &str = "turnlock_messages_total";

const OF_A_LOCK: &[&str] = &["kind", "store", "group"];

/// All metrics that a client records.
pub const METRICS: &[Metric] = &[
    Metric {
        name: ACQUISITIONS,
        metric_type: MetricType::Counter,
        labels: &["kind", "store", "group", "outcome"],
        description: "Acquires that ended, by outcome: granted, handed_over, busy, timed_out, failed or cancelled",
    },
    Metric {
        name: WAIT,
        metric_type: MetricType::Histogram,
        labels: OF_A_LOCK,
        description: "Time from the call of an acquire to its end, whatever the outcome, except busy",
    },
    Metric {
        name: HOLD,
        metric_type: MetricType::Histogram,
        labels: OF_A_LOCK,
        description: "Time from the grant of a lock to its release or loss",
    },
    Metric {
        name: WAITERS,
        metric_type: MetricType::Gauge,
        labels: OF_A_LOCK,
        description: "Acquires that are under way",
    },
    Metric {
        name: HOLDS,
        metric_type: MetricType::Gauge,
        labels: OF_A_LOCK,
        description: "Locks that are held",
    },
    Metric {
        name: OLDEST_HOLD,
        metric_type: MetricType::Gauge,
        labels: OF_A_LOCK,
        description: "Age of the oldest hold, updated with renewals; zero without a hold that was renewed",
    },
    Metric {
        name: LOST,
        metric_type: MetricType::Counter,
        labels: &["kind", "store", "group", "reason"],
        description: "Lost locks, by reason: expired, not_renewed, taken or gone_after_reconnect",
    },
    Metric {
        name: RENEWALS,
        metric_type: MetricType::Counter,
        labels: &["kind", "store", "group", "outcome"],
        description: "Renewals and checks of holds, by outcome: confirmed, not_held or failed",
    },
    Metric {
        name: RENEWAL_BATCH,
        metric_type: MetricType::Histogram,
        labels: &["store"],
        description: "Holds per renewal request",
    },
    Metric {
        name: CALL_BATCH,
        metric_type: MetricType::Histogram,
        labels: &["store"],
        description: "Steps per call of a server that several steps share",
    },
    Metric {
        name: STORE_CALLS,
        metric_type: MetricType::Counter,
        labels: &["store", "operation", "outcome"],
        description: "Steps and subscriptions that ended, by outcome: ok, unavailable, denied, refused or too_few_replicas",
    },
    Metric {
        name: STORE_CALL,
        metric_type: MetricType::Histogram,
        labels: &["store", "operation"],
        description: "Time from the call of the store to its reply or failure",
    },
    Metric {
        name: REPLICA_ACKNOWLEDGEMENTS,
        metric_type: MetricType::Counter,
        labels: &["store"],
        description: "Acknowledgements of replicas; a batch of renewals counts once, with the fewest of its parts",
    },
    Metric {
        name: RECONNECTS,
        metric_type: MetricType::Counter,
        labels: &["store"],
        description: "Connections that were made again, and servers that took over",
    },
    Metric {
        name: MESSAGES,
        metric_type: MetricType::Counter,
        labels: &["store", "used"],
        description: "Messages of releases, and wake-ups after an interrupted subscription, by whether the client uses the name",
    },
];

/// Describes all metrics to the recorder.
pub(super) fn describe() {
    for &Metric { name, metric_type, description, .. } in METRICS {
        let unit = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
        match metric_type {
            MetricType::Counter => describe_counter!(name, unit, description),
            MetricType::Gauge => describe_gauge!(name, unit, description),
            MetricType::Histogram => describe_histogram!(name, unit, description),
        }
    }
}
