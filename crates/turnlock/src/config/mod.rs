//! The configuration of a client: one list of settings, from code, a URL or a file.
//!
//! [`Builder`] methods, the parameters of a `StoreUrl` and a file (serde) set the fields of [`Settings`]. The settings
//! of the builder or the file and those of the URL are merged: a setting in both must be the same. When connecting,
//! each store takes its own part, and `CheckedSettings` are what the engine uses.

mod builder;
mod checked_settings;
mod connect;
mod store_url;

use std::collections::HashSet;
use std::time::Duration;

#[cfg(all(feature = "file", unix))]
use turnlock_file::FileSettings;
#[cfg(feature = "redis")]
use turnlock_redis::RedisSettings;
use turnlock_store::{Secret, SettingError, percent_decode, settings};

pub use builder::Builder;

settings! {
    /// The settings of a client, as a configuration file has them. For [`Client::from_settings`].
    ///
    /// With the feature `serde`, they can be deserialized from TOML, JSON, environment variables and the like: a map
    /// from names to values. The names are `url`, the parameters of the [URL](crate::Client::connect), and
    /// `watchdog_timeout`, `retry_for`, `poll_interval`, `hand_over_window`, `key_prefix` and `label` as in
    /// [`Builder`](crate::Builder). Durations are texts such as `500ms`, `5s` or `1m 30s`. A name that is not known is
    /// an error. A password is in the URL, or in a file or a variable that `password_file` or `password_env` names.
    ///
    /// [`Builder::from`](crate::Builder#impl-From<Settings>-for-Builder) changes settings in code. `{:?}` shows no
    /// password.
    ///
    /// [`Client::from_settings`]: crate::Client::from_settings
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "serde")]
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let file = r#"{ "url": "memory://", "watchdog_timeout": "9s", "key_prefix": "billing:" }"#;
    /// let settings: turnlock::Settings = serde_json::from_str(file)?;
    /// let client = turnlock::Client::from_settings(settings).await?;
    /// # drop(client);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Settings;
    pub(crate) in_text {
        url: Secret,
        watchdog_timeout: Duration,
        response_timeout: Duration,
        connect_timeout: Duration,
        retry_for: Duration,
        poll_interval: Duration,
        hand_over_window: Duration,
        key_prefix: String,
        label: String,
        replicas: u32,
    }
    in_code {}
    parts {
        #[cfg(feature = "redis")]
        redis: RedisSettings,
        #[cfg(all(feature = "file", unix))]
        file: FileSettings,
    }
}

/// The settings that cannot be parameters of a URL.
const NOT_IN_URLS: [&str; 7] =
    ["url", "watchdog_timeout", "retry_for", "poll_interval", "hand_over_window", "key_prefix", "label"];

impl Settings {
    /// Sets the settings in the parameters of a URL, after the `?`.
    ///
    /// Errors show no values: a value can be a password in the wrong place.
    fn set_parameters(&mut self, query: &str) -> Result<(), SettingError> {
        let mut known = Self::names();
        known.retain(|name| !NOT_IN_URLS.contains(name));
        let mut seen = HashSet::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(SettingError::new("url", "a parameter has no value; write NAME=VALUE"));
            };
            let Some(name) = known.iter().copied().find(|known| *known == name) else {
                return Err(SettingError::new("url", unknown("parameter", name, &known)));
            };
            if !seen.insert(name) {
                return Err(SettingError::new(name, "set twice in the URL; leave one of them out"));
            }
            self.set(name, &percent_decode(name, value)?)?;
        }
        Ok(())
    }
}

/// Describes a name that is not that of a setting.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let hint = match name {
        "pass" | "password" | "pwd" => {
            "; write a password before the host (redis://user:PASSWORD@host), or use password_file or password_env"
        }
        _ => "",
    };
    // Other text can be a part of a password.
    let looks_like_a_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let name = if looks_like_a_name { format!(" `{name}`") } else { String::new() };
    format!("unknown {what}{name}{hint}; the known ones are {}", known.join(", "))
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Settings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SettingsVisitor)
    }
}

#[cfg(feature = "serde")]
struct SettingsVisitor;

#[cfg(feature = "serde")]
impl<'de> serde::de::Visitor<'de> for SettingsVisitor {
    type Value = Settings;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("settings by their names")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
        use serde::de::Error;
        use serde_json::Value;

        /// The settings that are yes or no.
        const SWITCHES: [&str; 2] = ["any_file_system", "verify"];

        let (mut settings, names) = (Settings::default(), Settings::names());
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if !names.contains(&&*name) {
                return Err(A::Error::custom(unknown("setting", &name, &names)));
            }
            let text = match value {
                Value::Null => continue,
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(yes) if SWITCHES.contains(&&*name) => if yes { "yes" } else { "no" }.to_owned(),
                _ => {
                    return Err(A::Error::custom(format!(
                        "invalid setting `{name}`: must be a text or a number"
                    )));
                }
            };
            settings.set(&name, &text).map_err(A::Error::custom)?;
        }
        Ok(settings)
    }
}

#[cfg(all(test, feature = "serde", feature = "redis", feature = "file", unix))]
mod tests;
