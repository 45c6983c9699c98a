use std::cell::Cell;
use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusHandle, PrometheusRecorder};

use crate::monitoring::exporter;

thread_local! {
    static LOOK_UPS: Cell<usize> = const { Cell::new(0) };
}

/// The recorder of Prometheus, with a count of the look-ups of handles on each thread.
struct CountingRecorder(PrometheusRecorder);

impl CountingRecorder {
    fn count(&self) -> &PrometheusRecorder {
        LOOK_UPS.set(LOOK_UPS.get() + 1);
        &self.0
    }
}

impl Recorder for CountingRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_counter(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_gauge(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.0.describe_histogram(key, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.count().register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.count().register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.count().register_histogram(key, metadata)
    }
}

/// Installs the recorder, once, and returns what renders it.
pub(crate) fn install() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let recorder = exporter().expect("buckets").build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(CountingRecorder(recorder)).map_err(drop).expect("the first recorder");
        handle
    })
}

/// How often a handle was looked up on this thread.
pub(crate) fn look_ups() -> usize {
    LOOK_UPS.get()
}

/// Returns the sum of all samples of `name` that have these labels.
pub(crate) fn value(name: &str, labels: &[(&str, &str)]) -> f64 {
    let text = install().render();
    let has_labels =
        |line: &&str| labels.iter().all(|(label, value)| line.contains(&format!("{label}=\"{value}\"")));
    let samples = text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).filter(has_labels);
    samples.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
}
