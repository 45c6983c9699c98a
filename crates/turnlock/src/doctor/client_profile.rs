use std::time::Duration;

use crate::settings::Settings;

/// The settings of the client that the findings depend on.
pub(super) struct ClientProfile {
    /// The lease of a renewed lock.
    pub(super) lease: Duration,
    /// How long the client waits for a reply.
    pub(super) response_timeout: Duration,
    /// How many replicas must acknowledge a grant.
    pub(super) replicas: u32,
}

impl ClientProfile {
    pub(super) fn of(settings: &Settings) -> Self {
        let response_timeout = settings.response_limit(settings.watchdog_timeout);
        Self {
            lease: settings.watchdog_timeout.as_duration(),
            response_timeout: response_timeout.unwrap_or_else(|_| settings.usual_limit()),
            replicas: settings.replicas,
        }
    }
}
