use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::backend::redis::{Address, Secret};
use crate::connect_settings::{ConnectSettings, Servers};
use crate::error::Error;
use crate::url_parameters;

/// A parsed store URL.
///
/// Split by hand, because several hosts are not valid in a standard URL. An error shows no part of the text that can
/// belong to a password, even if a character of the password was not encoded.
#[derive(Clone, Debug)]
pub(crate) struct StoreUrl {
    pub(crate) store: Store,
    pub(crate) settings: ConnectSettings,
}

/// A store, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Without a name, the default store of the process.
    Memory {
        name: Option<String>,
    },
    /// An empty path is the default file of the user.
    File {
        path: PathBuf,
    },
    Redis {
        servers: Servers,
        use_tls: bool,
    },
}

/// The default port of a server.
pub(crate) const SERVER_PORT: u16 = 6379;
/// The default port of a sentinel.
pub(crate) const SENTINEL_PORT: u16 = 26379;

impl StoreUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(':').ok_or_else(not_a_url)?;
        let scheme = scheme.to_ascii_lowercase();
        match (scheme.as_str(), rest.strip_prefix("//")) {
            ("memory", _) => memory(text),
            ("file", _) => file(rest),
            (_, None) => Err(not_a_url()),
            ("redis" | "valkey", Some(rest)) => server(rest, false),
            ("rediss" | "valkeys", Some(rest)) => server(rest, true),
            ("unix" | "redis+unix" | "valkey+unix", Some(rest)) => unix(rest),
            ("redis+sentinel" | "valkey+sentinel", Some(rest)) => sentinels(rest, false),
            ("rediss+sentinel" | "valkeys+sentinel", Some(rest)) => sentinels(rest, true),
            ("redis+cluster" | "valkey+cluster", Some(rest)) => cluster(rest, false),
            ("rediss+cluster" | "valkeys+cluster", Some(rest)) => cluster(rest, true),
            (_, Some(_)) => Err(bad(
                "unknown scheme; the known ones are redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, \
                 redis+cluster, rediss+cluster, file and memory",
            )),
        }
    }
}

/// Parses `host[:port]`. An IPv6 address is in brackets.
pub(crate) fn parse_address(text: &str, default_port: u16) -> Result<Address, &'static str> {
    const IN_BRACKETS: &str = "an IPv6 address must be in brackets, as in [::1]:6379";
    let (host, port) = match text.rsplit_once(':') {
        // The colons belong to the IPv6 address.
        Some(_) if text.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(inner)) => inner.parse::<Ipv6Addr>().map_err(|_| IN_BRACKETS)?.to_string(),
        Some(None) => return Err(IN_BRACKETS),
        None if host.contains(':') => return Err(IN_BRACKETS),
        None if host.is_empty() => return Err("the host is missing"),
        None => Host::parse(host).map_err(|_| "the host contains invalid characters")?.to_string(),
    };
    let port = match port {
        None => default_port,
        Some(port) => match parse_number(port).and_then(|port| u16::try_from(port).ok()) {
            None | Some(0) => return Err("the port is not a number from 1 to 65535"),
            Some(port) => port,
        },
    };
    Ok(Address::tcp(&host, port))
}

/// The parts of a URL after `scheme://`.
struct UrlParts<'a> {
    hosts: &'a str,
    /// Includes the leading slash.
    path: &'a str,
    settings: ConnectSettings,
}

impl<'a> UrlParts<'a> {
    fn parse(rest: &'a str) -> Result<Self, Error> {
        const ENCODE: &str =
            "write the characters / ? # @ in a user, a password or a name as %2F %3F %23 %40";
        if rest.contains('#') {
            return Err(bad(format!("it contains a #; {ENCODE}")));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_at(before.find('/').unwrap_or(before.len()));
        // A password with a slash ends up in the path. Only the path of a socket has no host and no user before it.
        if query.contains('@') || (path.contains('@') && !authority.is_empty()) {
            return Err(bad(format!("it contains an @ after the host; {ENCODE}")));
        }
        let mut settings = ConnectSettings::default();
        let hosts = match authority.rsplit_once('@') {
            None => authority,
            Some((credentials, hosts)) => {
                let (user, password) = match credentials.split_once(':') {
                    None => (credentials, None),
                    Some((user, password)) => (user, Some(password)),
                };
                if !user.is_empty() {
                    settings.credentials.user = Some(percent_decode("user", user)?.into_owned());
                }
                if let Some(password) = password {
                    settings.credentials.password = Some(Secret::new(percent_decode("password", password)?));
                }
                hosts
            }
        };
        url_parameters::apply(query, &mut settings)?;
        Ok(Self { hosts, path, settings })
    }

    fn addresses(&self, default_port: u16) -> Result<Vec<Address>, Error> {
        let hosts: Vec<&str> = self.hosts.split(',').collect();
        let count = hosts.len();
        let parse = |(index, host): (usize, &&str)| {
            parse_address(host, default_port).map_err(|reason| match count {
                1 => bad(reason),
                _ => bad(format!("address {} of {count}: {reason}", index + 1)),
            })
        };
        hosts.iter().enumerate().map(parse).collect()
    }

    /// Sets the database from a segment of the path.
    fn set_database(&mut self, segment: &str) -> Result<(), Error> {
        if segment.is_empty() {
            return Ok(());
        }
        let database =
            parse_number(segment).ok_or_else(|| bad("the database after the host is not a number"))?;
        if self.settings.database.replace(database).is_some() {
            return Err(Error::bad_setting(
                "database",
                "set twice in the URL: in the path, and by `db`; leave one of them out",
            ));
        }
        Ok(())
    }

    fn into_store_url(self, servers: Servers, use_tls: bool) -> StoreUrl {
        StoreUrl { store: Store::Redis { servers, use_tls }, settings: self.settings }
    }
}

/// Parses what follows `file:`.
///
/// `file:PATH` is a path as it is; `file://` starts a standard URL. A `?` can be a part of both, so only the one
/// parameter of a file store is parsed as a parameter.
fn file(rest: &str) -> Result<StoreUrl, Error> {
    let mut settings = ConnectSettings::default();
    let rest = match rest.rsplit_once('?') {
        Some((path, parameter)) if parameter.starts_with("any_file_system=") => {
            url_parameters::apply(parameter, &mut settings)?;
            path
        }
        _ => rest,
    };
    let path = match rest.strip_prefix("//") {
        None => PathBuf::from(rest),
        Some(rest) => {
            let path = rest.strip_prefix("localhost").unwrap_or(rest);
            if !path.starts_with('/') {
                return Err(bad(
                    "not a path; write it as file:/var/lib/jobs.locks or file:///var/lib/jobs.locks",
                ));
            }
            PathBuf::from(&*percent_decode("url", path)?)
        }
    };
    Ok(StoreUrl { store: Store::File { path }, settings })
}

fn memory(text: &str) -> Result<StoreUrl, Error> {
    let url =
        Url::parse(text).map_err(|_| bad("not the name of a memory store; write it as memory://NAME"))?;
    let name = url.host_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let mut settings = ConnectSettings::default();
    url_parameters::apply(url.query().unwrap_or_default(), &mut settings)?;
    Ok(StoreUrl { store: Store::Memory { name }, settings })
}

fn server(rest: &str, use_tls: bool) -> Result<StoreUrl, Error> {
    let mut parts = UrlParts::parse(rest)?;
    let mut addresses = parts.addresses(SERVER_PORT)?;
    let (Some(address), None) = (addresses.pop(), addresses.pop()) else {
        return Err(bad(
            "several hosts; use redis+sentinel:// for sentinels, redis+cluster:// for a cluster",
        ));
    };
    parts.set_database(parts.path.strip_prefix('/').unwrap_or_default())?;
    Ok(parts.into_store_url(Servers::One(address), use_tls))
}

fn unix(rest: &str) -> Result<StoreUrl, Error> {
    let parts = UrlParts::parse(rest)?;
    if !parts.hosts.is_empty() || parts.path.len() < 2 {
        return Err(bad("not the absolute path of a Unix socket; write it as redis+unix:///run/redis.sock"));
    }
    let address = Address::unix(&*percent_decode("url", parts.path)?);
    Ok(parts.into_store_url(Servers::One(address), false))
}

fn sentinels(rest: &str, use_tls: bool) -> Result<StoreUrl, Error> {
    let mut parts = UrlParts::parse(rest)?;
    let sentinels = parts.addresses(SENTINEL_PORT)?;
    let path = parts.path.strip_prefix('/').unwrap_or_default();
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    parts.set_database(database)?;
    let master = percent_decode("master_name", master)?.into_owned();
    Ok(parts.into_store_url(Servers::Sentinels { sentinels, master }, use_tls))
}

fn cluster(rest: &str, use_tls: bool) -> Result<StoreUrl, Error> {
    let mut parts = UrlParts::parse(rest)?;
    let seeds = parts.addresses(SERVER_PORT)?;
    parts.set_database(parts.path.strip_prefix('/').unwrap_or_default())?;
    Ok(parts.into_store_url(Servers::Cluster { seeds }, use_tls))
}

/// Decodes `%41` and the like.
pub(crate) fn percent_decode<'a>(setting: &'static str, text: &'a str) -> Result<Cow<'a, str>, Error> {
    percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| Error::bad_setting(setting, "the characters written with % are not UTF-8"))
}

/// Parses a number of digits, without a sign.
pub(crate) fn parse_number(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn not_a_url() -> Error {
    bad("not a URL; write for example redis://127.0.0.1:6379")
}

fn bad(reason: impl Into<String>) -> Error {
    Error::bad_setting("url", reason)
}

#[cfg(test)]
mod tests;
