use serde::{Deserialize, Serialize};

/// The report of a participant, printed as one line of JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The number of grants.
    pub turns: u64,
    /// The duration of the workload.
    pub seconds: f64,
    /// The number of failed calls of the library.
    #[serde(default)]
    pub errors: u64,
    /// The first error.
    #[serde(default)]
    pub first_error: String,
    /// The number of tasks that still waited when the participant gave up.
    #[serde(default)]
    pub gave_up: u64,
    /// The number of grants of each task.
    #[serde(default)]
    pub per_task: Vec<u64>,
    /// The times that the workload measures.
    #[serde(default)]
    pub nanos: Vec<u64>,
    /// Commands that the library sends outside of scripts.
    #[serde(default)]
    pub direct: Vec<String>,
}

/// Printed instead of `ready` for a workload that the library does not support.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unsupported {
    /// The reason.
    pub unsupported: String,
}
