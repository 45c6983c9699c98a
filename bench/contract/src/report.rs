use serde::{Deserialize, Serialize};

/// What a participant says at the end, as one line of JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Grants in all.
    pub turns: u64,
    /// How long the work took.
    pub seconds: f64,
    /// Calls of the library that failed.
    #[serde(default)]
    pub errors: u64,
    /// The first of them.
    #[serde(default)]
    pub first_error: String,
    /// Tasks that still waited when the participant gave up.
    #[serde(default)]
    pub gave_up: u64,
    /// Turns of each task.
    #[serde(default)]
    pub per_task: Vec<u64>,
    /// The times that the work asks for.
    #[serde(default)]
    pub nanos: Vec<u64>,
    /// Commands that the library sends by themselves, and not only from within scripts.
    #[serde(default)]
    pub direct: Vec<String>,
}

/// What a participant says instead of `ready` to a work that it cannot do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Why, in a few words.
    pub cannot: String,
}
