//! The configuration of a client: one list of settings, from code, a URL or a file.
//!
//! [`Builder`] methods, the parameters of a `StoreUrl` and a file (serde) set the fields of [`Settings`]. The settings
//! of the builder or the file and those of the URL are merged: a setting in both must be the same. When connecting,
//! each store takes its own part, and `CheckedSettings` are what the engine uses.

mod builder;
mod store_url;

use std::collections::HashSet;
use std::time::Duration;

use turnlock_core::Lease;
#[cfg(all(feature = "file", unix))]
use turnlock_file::FileSettings;
#[cfg(feature = "redis")]
use turnlock_redis::RedisSettings;
use turnlock_store::{Secret, SettingError, percent_decode, settings};

use crate::engine::CheckedSettings;
use crate::metrics::Options;
use crate::{Client, Error};
pub use builder::Builder;

settings! {
    /// The settings of a client, as a configuration file has them. For [`Client::from_settings`].
    ///
    /// With the feature `serde`, they can be deserialized from TOML, JSON, environment variables and the like: a map
    /// from names to values. The names are `url`, the parameters of the [URL](crate::Client::connect), and
    /// `watchdog_timeout`, `retry_for`, `poll_interval`, `hand_over_window`, `key_prefix`, `label`, `announce_waits`,
    /// `announce_call_sites` and `fail_on_deadlock` as in [`Builder`](crate::Builder). Durations are texts such as `500ms`, `5s` or `1m 30s`. A name that is not known is
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
        announce_waits: bool,
        announce_call_sites: bool,
        fail_on_deadlock: bool,
    }
    in_code {}
    parts {
        #[cfg(feature = "redis")]
        redis: RedisSettings,
        #[cfg(all(feature = "file", unix))]
        file: FileSettings,
    }
}

impl Client {
    /// Connects to the store of this URL, with the default settings.
    ///
    /// | store | URL |
    /// |---|---|
    /// | a Redis or Valkey server, alone or with replicas | `redis://[user[:password]@]host[:port][/database]` |
    /// | a Unix socket | `redis+unix:///path` or `unix:///path` |
    /// | sentinels | `redis+sentinel://[user[:password]@]host[:port],host[:port],…/master-name[/database]` |
    /// | a cluster, by some of its nodes | `redis+cluster://[user[:password]@]host[:port],host[:port],…` |
    /// | with TLS | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` |
    /// | a file, for the processes of this machine | `file:PATH` or `file:///PATH` |
    /// | the default file of this user, which other users do not share | `file:` |
    /// | the memory of this process | `memory://` |
    /// | another store in the memory of this process | `memory://NAME` |
    ///
    /// `valkey` can replace `redis`. The default port is 6379, and 26379 for sentinels. An IPv6 address is written in
    /// brackets. A password without a user (`redis://:password@host`) is that of the default user. In user, password and
    /// master name, the characters `/ ? # @ %` are written `%2F %3F %23 %40 %25`.
    ///
    /// A file store needs no server, and a Unix system. The file is created if it does not exist; the directory must exist.
    /// The store is private to this user, unless its directory belongs to root and has mode 2750: then root creates it, and
    /// the group of the directory shares it. The locks of a process that dies are free within a second, whatever their lease (except holds of `unlock_after`), and so are
    /// all locks after a restart of the machine. The default file is `turnlock/locks` in `XDG_STATE_HOME`, or in
    /// `~/.local/state`.
    ///
    /// Parameters follow a `?` and are separated by `&`. [`Builder`] has them as methods.
    ///
    /// | parameter | meaning | default |
    /// |---|---|---|
    /// | `db` | the database, instead of the one in the path | 0 |
    /// | `user` | the user, instead of the one before the host | the default user |
    /// | `password_file`, `password_env` | a file or an environment variable with the password | |
    /// | `client_name` | the name of the connections on the server | none |
    /// | `connect_timeout`, `response_timeout` | as `500ms`, `5s`, `2m` | see [`Builder`] |
    /// | `replicas` | how many replicas must acknowledge a lock | 0 |
    /// | `ca_file` | the CAs to trust, and only these (PEM) | those of the system |
    /// | `cert_file`, `key_file` | the certificate of the client and its key (PEM) | none |
    /// | `server_name` | the name in the server's certificate | the host |
    /// | `verify` | `no` accepts any server: see [`Tls::danger_accept_any_server`](crate::Tls::danger_accept_any_server) | `yes` |
    /// | `sentinel_user`, `sentinel_password_file`, `sentinel_password_env` | the credentials for sentinels | none |
    /// | `any_file_system` | `yes` accepts any file system: see [`Builder::any_file_system`]; the only parameter of `file:` | `no` |
    /// | `messages` | `auto`, `sharded` or `plain`: see [`ClusterMessages`](crate::ClusterMessages) | `auto` |
    ///
    /// No error and no log line contains a password.
    ///
    /// # Errors
    ///
    /// [`Error::BadConfiguration`] with the name of the setting. [`Error::Unavailable`] if the store cannot be reached
    /// within [`connect_timeout`](Builder::connect_timeout). [`Error::Denied`] if the password is wrong, or if this user may not
    /// use the file.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Returns a [`Builder`] to set options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects to the store of the `url` in the [`Settings`], which a file can have.
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`].
    pub async fn from_settings(settings: Settings) -> Result<Self, Error> {
        Builder::from(settings).open().await
    }
}

/// The settings that cannot be parameters of a URL.
const NOT_IN_URLS: [&str; 10] = [
    "url",
    "watchdog_timeout",
    "retry_for",
    "poll_interval",
    "hand_over_window",
    "key_prefix",
    "label",
    "announce_waits",
    "announce_call_sites",
    "fail_on_deadlock",
];

impl Settings {
    /// Checks the settings of a client, and fills in the defaults.
    ///
    /// The store has taken out the settings that are its own.
    pub(crate) fn check(self, store: &str, has_replicas: bool) -> Result<CheckedSettings, Error> {
        if self.url.is_some() {
            let reason =
                format!("names a store, and {store} is opened; leave it out, or use `Builder::open`");
            return Err(Error::bad_setting("url", reason));
        }
        if let Some(setting) = self.first_set_in_parts() {
            return Err(Error::bad_setting(setting, format!("has no meaning for {store}; leave it out")));
        }
        let replicas = self.replicas.unwrap_or(0);
        if replicas > 0 && !has_replicas {
            return Err(Error::bad_setting("replicas", format!("{store} has no replicas; leave it out")));
        }
        let watchdog_timeout = self.watchdog_timeout.map_or(Ok(Lease::WATCHDOG), Lease::new);
        let watchdog_timeout =
            watchdog_timeout.map_err(|error| Error::bad_setting("watchdog_timeout", error.to_string()))?;
        let positive = |setting, time| match time {
            Duration::ZERO => Err(Error::bad_setting(setting, "must be longer than zero")),
            time => Ok(time),
        };
        let seconds = Duration::from_secs;
        let response_timeout = self.response_timeout.map(|timeout| positive("response_timeout", timeout));
        let checked = CheckedSettings {
            watchdog_timeout,
            hand_over_window: hand_over_window(self.hand_over_window, watchdog_timeout)?,
            response_timeout: response_timeout.transpose()?,
            connect_timeout: positive("connect_timeout", self.connect_timeout.unwrap_or(seconds(5)))?,
            retry_for: positive("retry_for", self.retry_for.unwrap_or(seconds(30)))?,
            poll_interval: positive("poll_interval", self.poll_interval.unwrap_or(seconds(1)))?,
            key_prefix: self.key_prefix.unwrap_or_default(),
            label: self.label,
            replicas,
            metrics: Options::default(),
            announce_waits: self.announce_waits.unwrap_or(true),
            announce_call_sites: self.announce_call_sites.unwrap_or(false),
            fail_on_deadlock: self.fail_on_deadlock.unwrap_or(false),
        };
        checked.response_limit(watchdog_timeout)?;
        if checked.fail_on_deadlock && !checked.announce_waits {
            let reason = "needs `announce_waits`, by which deadlocks are found; set that, or leave this out";
            return Err(Error::bad_setting("fail_on_deadlock", reason));
        }
        Ok(checked)
    }

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

/// Limits the hand-over window. Until it ends, no request checks that the store still has the hold.
fn hand_over_window(requested: Option<Duration>, watchdog: Lease) -> Result<Duration, Error> {
    let longest = watchdog.as_duration() / 10;
    match requested {
        None => Ok(Duration::from_millis(10).min(longest)),
        Some(window) if window <= longest => Ok(window),
        Some(window) => Err(Error::bad_setting(
            "hand_over_window",
            format!(
                "{window:?} is more than a tenth of `watchdog_timeout`; use at most {longest:?}, or zero to turn it off"
            ),
        )),
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
        const SWITCHES: [&str; 5] =
            ["any_file_system", "announce_call_sites", "announce_waits", "fail_on_deadlock", "verify"];

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
