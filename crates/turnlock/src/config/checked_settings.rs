use std::time::Duration;

use turnlock_core::Lease;

use super::Settings;
use crate::engine::CheckedSettings;
use crate::error::Error;

impl CheckedSettings {
    /// Checks the settings of a client, and fills in the defaults.
    ///
    /// The store has taken out the settings that are its own.
    pub(super) fn new(settings: Settings, store: &str, has_replicas: bool) -> Result<Self, Error> {
        if settings.url.is_some() {
            let reason =
                format!("names a store, and {store} is opened; leave it out, or use `Builder::open`");
            return Err(Error::bad_setting("url", reason));
        }
        if let Some(setting) = settings.first_set_in_parts() {
            return Err(Error::bad_setting(setting, format!("has no meaning for {store}; leave it out")));
        }
        let replicas = settings.replicas.unwrap_or(0);
        if replicas > 0 && !has_replicas {
            return Err(Error::bad_setting("replicas", format!("{store} has no replicas; leave it out")));
        }
        let defaults = Self::default();
        let watchdog_timeout = match settings.watchdog_timeout {
            None => defaults.watchdog_timeout,
            Some(timeout) => Lease::new(timeout)
                .map_err(|error| Error::bad_setting("watchdog_timeout", error.to_string()))?,
        };
        let window = settings.hand_over_window;
        let checked = Self {
            watchdog_timeout,
            hand_over_window: hand_over_window(window, defaults.hand_over_window, watchdog_timeout)?,
            response_timeout: positive("response_timeout", settings.response_timeout)?,
            connect_timeout: positive("connect_timeout", settings.connect_timeout)?
                .unwrap_or(defaults.connect_timeout),
            retry_for: positive("retry_for", settings.retry_for)?.unwrap_or(defaults.retry_for),
            poll_interval: positive("poll_interval", settings.poll_interval)?
                .unwrap_or(defaults.poll_interval),
            key_prefix: settings.key_prefix.unwrap_or_default(),
            label: settings.label,
            replicas,
        };
        checked.response_limit(watchdog_timeout)?;
        Ok(checked)
    }
}

fn positive(setting: &'static str, time: Option<Duration>) -> Result<Option<Duration>, Error> {
    match time {
        Some(time) if time.is_zero() => Err(Error::bad_setting(setting, "must be longer than zero")),
        time => Ok(time),
    }
}

/// Limits the hand-over window. Until it ends, no request checks that the store still has the hold.
fn hand_over_window(
    requested: Option<Duration>,
    default: Duration,
    watchdog: Lease,
) -> Result<Duration, Error> {
    let longest = watchdog.as_duration() / 10;
    match requested {
        None => Ok(default.min(longest)),
        Some(window) if window <= longest => Ok(window),
        Some(window) => Err(Error::bad_setting(
            "hand_over_window",
            format!(
                "{window:?} is more than a tenth of `watchdog_timeout`; use at most {longest:?}, or zero to turn it off"
            ),
        )),
    }
}
