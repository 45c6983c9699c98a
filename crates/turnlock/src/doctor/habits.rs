use std::time::Duration;

use crate::settings::Settings;

/// What the client does, as far as it matters to what is found.
pub(super) struct Habits {
    /// The lease of a renewed lock.
    pub(super) lease: Duration,
    /// How long an answer is waited for.
    pub(super) patience: Duration,
    /// How many replicas must acknowledge a grant.
    pub(super) replicas: u32,
}

impl Habits {
    pub(super) fn of(settings: &Settings) -> Self {
        let patience = settings.patience(settings.watchdog);
        Self {
            lease: settings.watchdog.as_duration(),
            patience: patience.unwrap_or_else(|_| settings.usual_patience()),
            replicas: settings.replicas,
        }
    }
}
