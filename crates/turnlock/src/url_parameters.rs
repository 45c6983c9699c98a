//! The parameters of a store URL, after the `?`.

use std::collections::HashSet;
use std::time::Duration;

use crate::backend::redis::ClusterMessages;
use crate::connect_settings::ConnectSettings;
use crate::error::Error;
use crate::store_url::{parse_number, percent_decode};
use crate::tls::{Pem, Tls};

const PARAMETERS: [&str; 18] = [
    "db",
    "user",
    "password_file",
    "password_env",
    "client_name",
    "connect_timeout",
    "response_timeout",
    "replicas",
    "messages",
    "ca_file",
    "cert_file",
    "key_file",
    "server_name",
    "verify",
    "sentinel_user",
    "sentinel_password_file",
    "sentinel_password_env",
    "any_file_system",
];

/// Adds the parameters to the settings.
///
/// Errors show no values: a value can be a password in the wrong place.
pub(crate) fn apply(query: &str, settings: &mut ConnectSettings) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Error::bad_setting("url", "a parameter has no value; write NAME=VALUE"));
        };
        let Some(name) = PARAMETERS.into_iter().find(|known| *known == name) else {
            return Err(unknown_parameter(name));
        };
        if !seen.insert(name) {
            return Err(duplicate(name));
        }
        set(name, &percent_decode(name, value)?, settings)?;
    }
    Ok(())
}

fn set(name: &'static str, value: &str, settings: &mut ConnectSettings) -> Result<(), Error> {
    let text = || Some(value.to_owned());
    match name {
        "db" => settings.database = Some(count(name, value)?),
        "user" if settings.credentials.user.is_some() => return Err(duplicate(name)),
        "user" => settings.credentials.user = text(),
        "password_file" => settings.credentials.password_file = Some(value.into()),
        "password_env" => settings.credentials.password_env = text(),
        "client_name" => settings.client_name = text(),
        "connect_timeout" => settings.connect_timeout = Some(duration(name, value)?),
        "response_timeout" => settings.response_timeout = Some(duration(name, value)?),
        "replicas" => settings.replicas = Some(count(name, value)?),
        "messages" => settings.messages = Some(cluster_messages(name, value)?),
        "any_file_system" => settings.any_file_system = Some(yes_or_no(name, value)?),
        "sentinel_user" => settings.sentinel_credentials.user = text(),
        "sentinel_password_file" => settings.sentinel_credentials.password_file = Some(value.into()),
        "sentinel_password_env" => settings.sentinel_credentials.password_env = text(),
        _ => set_tls(name, value, settings.tls.get_or_insert_default())?,
    }
    Ok(())
}

fn set_tls(name: &'static str, value: &str, tls: &mut Tls) -> Result<(), Error> {
    let file = || Some(Pem::File(value.into()));
    match name {
        "ca_file" => tls.ca = file(),
        "cert_file" => tls.certificate = file(),
        "key_file" => tls.key = file(),
        "server_name" => tls.server_name = Some(value.to_owned()),
        "verify" => tls.verify = Some(yes_or_no(name, value)?),
        _ => return Err(unknown_parameter(name)),
    }
    Ok(())
}

fn yes_or_no(setting: &'static str, value: &str) -> Result<bool, Error> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Error::bad_setting(setting, "must be yes or no")),
    }
}

fn count<T: TryFrom<i64>>(setting: &'static str, value: &str) -> Result<T, Error> {
    let count = parse_number(value).and_then(|count| T::try_from(count).ok());
    count.ok_or_else(|| Error::bad_setting(setting, "not a number, or too large"))
}

fn duration(setting: &'static str, value: &str) -> Result<Duration, Error> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (amount, unit) = value.split_at(digits);
    let amount: Option<u64> = amount.parse().ok();
    let time = match unit {
        "ms" => amount.map(Duration::from_millis),
        "s" => amount.map(Duration::from_secs),
        "m" => amount.and_then(|minutes| minutes.checked_mul(60)).map(Duration::from_secs),
        _ => None,
    };
    time.ok_or_else(|| Error::bad_setting(setting, "must be a duration with its unit, as 500ms, 5s or 2m"))
}

fn cluster_messages(setting: &'static str, value: &str) -> Result<ClusterMessages, Error> {
    match value {
        "auto" => Ok(ClusterMessages::Auto),
        "sharded" => Ok(ClusterMessages::Sharded),
        "plain" => Ok(ClusterMessages::Plain),
        _ => Err(Error::bad_setting(setting, "must be auto, sharded or plain")),
    }
}

fn duplicate(name: &'static str) -> Error {
    Error::bad_setting(name, "set twice in the URL; leave one of them out")
}

fn unknown_parameter(name: &str) -> Error {
    let known = PARAMETERS.join(", ");
    let hint = match name {
        "pass" | "password" | "pwd" => {
            "; write a password before the host (redis://user:PASSWORD@host), or use password_file or password_env"
        }
        _ => "",
    };
    // Other text can be a part of a password.
    let looks_like_a_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let name = if looks_like_a_name { format!(" `{name}`") } else { String::new() };
    Error::bad_setting("url", format!("unknown parameter{name}{hint}; the known ones are {known}"))
}
