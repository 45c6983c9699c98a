use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::backend::redis::{Address, Secret};
use crate::connect_settings::{ConnectSettings, Servers};
use crate::error::Error;
use crate::url_parameters;

/// What the URL of a store says.
///
/// Its parts are told apart by hand, since several hosts are no URL to others. An error never shows a piece of the text that
/// could belong to a password, also where a character in it was not encoded.
#[derive(Clone, Debug)]
pub(crate) struct StoreUrl {
    pub(crate) store: Store,
    pub(crate) settings: ConnectSettings,
}

/// Which store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory {
        name: Option<String>,
    },
    /// An empty path is the usual one.
    File {
        path: PathBuf,
    },
    Redis {
        servers: Servers,
        by_tls: bool,
    },
}

/// Where a server listens when no port is given.
pub(crate) const SERVER_PORT: u16 = 6379;
/// Where a sentinel does.
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
                "unknown kind of store before the ://; known are redis, rediss, redis+unix, redis+sentinel, \
                 rediss+sentinel, redis+cluster, rediss+cluster, file and memory",
            )),
        }
    }
}

/// `host[:port]`, the host of IPv6 in brackets.
pub(crate) fn address(text: &str, default_port: u16) -> Result<Address, &'static str> {
    const IN_BRACKETS: &str = "an address of IPv6 stands in brackets, as in [::1]:6379";
    let (host, port) = match text.rsplit_once(':') {
        // These colons are the host's.
        Some(_) if text.ends_with(']') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(inner)) => inner.parse::<Ipv6Addr>().map_err(|_| IN_BRACKETS)?.to_string(),
        Some(None) => return Err(IN_BRACKETS),
        None if host.contains(':') => return Err(IN_BRACKETS),
        None if host.is_empty() => return Err("there is no host"),
        None => Host::parse(host).map_err(|_| "the host has characters that no host has")?.to_string(),
    };
    let port = match port {
        None => default_port,
        Some(port) => match number(port).and_then(|port| u16::try_from(port).ok()) {
            None | Some(0) => return Err("the port is not a number from 1 to 65535"),
            Some(port) => port,
        },
    };
    Ok(Address::tcp(&host, port))
}

/// The pieces of what stands behind `scheme://`.
struct Pieces<'a> {
    hosts: &'a str,
    /// With its first slash.
    path: &'a str,
    settings: ConnectSettings,
}

impl<'a> Pieces<'a> {
    fn of(rest: &'a str) -> Result<Self, Error> {
        const ENCODE: &str =
            "in a user, a password and a name the characters / ? # @ are written %2F %3F %23 %40";
        if rest.contains('#') {
            return Err(bad(format!("there is a # in it; {ENCODE}")));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_at(before.find('/').unwrap_or(before.len()));
        // A password with a slash would end up in the path. Only a socket's path has no host, and no user, before it.
        if query.contains('@') || (path.contains('@') && !authority.is_empty()) {
            return Err(bad(format!("there is an @ behind the host; {ENCODE}")));
        }
        let mut settings = ConnectSettings::default();
        let hosts = match authority.rsplit_once('@') {
            None => authority,
            Some((login, hosts)) => {
                let (user, password) = match login.split_once(':') {
                    None => (login, None),
                    Some((user, password)) => (user, Some(password)),
                };
                if !user.is_empty() {
                    settings.credentials.user = Some(decoded("user", user)?.into_owned());
                }
                if let Some(password) = password {
                    settings.credentials.password = Some(Secret::new(decoded("password", password)?));
                }
                hosts
            }
        };
        url_parameters::read(query, &mut settings)?;
        Ok(Self { hosts, path, settings })
    }

    fn addresses(&self, default_port: u16) -> Result<Vec<Address>, Error> {
        let hosts: Vec<&str> = self.hosts.split(',').collect();
        let count = hosts.len();
        let parse = |(at, host): (usize, &&str)| {
            address(host, default_port).map_err(|reason| match count {
                1 => bad(reason),
                _ => bad(format!("address {} of {count}: {reason}", at + 1)),
            })
        };
        hosts.iter().enumerate().map(parse).collect()
    }

    /// Takes the database from a piece of the path.
    fn take_database(&mut self, piece: &str) -> Result<(), Error> {
        if piece.is_empty() {
            return Ok(());
        }
        let database = number(piece).ok_or_else(|| bad("the database behind the host is not a number"))?;
        if self.settings.database.replace(database).is_some() {
            return Err(Error::bad_setting("database", "stands twice in the URL: in the path, and as `db`"));
        }
        Ok(())
    }

    fn at(self, servers: Servers, by_tls: bool) -> StoreUrl {
        StoreUrl { store: Store::Redis { servers, by_tls }, settings: self.settings }
    }
}

/// `file:PATH` is a path as it is; `file://` begins a URL as others write it. A `?` may be part of either, so nothing but the one
/// parameter of a file is taken for one.
fn file(rest: &str) -> Result<StoreUrl, Error> {
    let mut settings = ConnectSettings::default();
    let rest = match rest.rsplit_once('?') {
        Some((path, parameter)) if parameter.starts_with("any_file_system=") => {
            url_parameters::read(parameter, &mut settings)?;
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
                    "a file is named as in file:/var/lib/jobs.locks or file:///var/lib/jobs.locks",
                ));
            }
            PathBuf::from(&*decoded("url", path)?)
        }
    };
    Ok(StoreUrl { store: Store::File { path }, settings })
}

fn memory(text: &str) -> Result<StoreUrl, Error> {
    let url =
        Url::parse(text).map_err(|_| bad("the name of a store in memory is written as in memory://NAME"))?;
    let name = url.host_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let mut settings = ConnectSettings::default();
    url_parameters::read(url.query().unwrap_or_default(), &mut settings)?;
    Ok(StoreUrl { store: Store::Memory { name }, settings })
}

fn server(rest: &str, by_tls: bool) -> Result<StoreUrl, Error> {
    let mut pieces = Pieces::of(rest)?;
    let mut addresses = pieces.addresses(SERVER_PORT)?;
    let (Some(address), None) = (addresses.pop(), addresses.pop()) else {
        return Err(bad(
            "there are several hosts; for sentinels use redis+sentinel://, for a cluster redis+cluster://",
        ));
    };
    pieces.take_database(pieces.path.strip_prefix('/').unwrap_or_default())?;
    Ok(pieces.at(Servers::One(address), by_tls))
}

fn unix(rest: &str) -> Result<StoreUrl, Error> {
    let pieces = Pieces::of(rest)?;
    if !pieces.hosts.is_empty() || pieces.path.len() < 2 {
        return Err(bad("a Unix socket is named by its whole path, as in redis+unix:///run/redis.sock"));
    }
    let address = Address::unix(&*decoded("url", pieces.path)?);
    Ok(pieces.at(Servers::One(address), false))
}

fn sentinels(rest: &str, by_tls: bool) -> Result<StoreUrl, Error> {
    let mut pieces = Pieces::of(rest)?;
    let sentinels = pieces.addresses(SENTINEL_PORT)?;
    let path = pieces.path.strip_prefix('/').unwrap_or_default();
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    pieces.take_database(database)?;
    let master = decoded("master_name", master)?.into_owned();
    Ok(pieces.at(Servers::Sentinels { sentinels, master }, by_tls))
}

fn cluster(rest: &str, by_tls: bool) -> Result<StoreUrl, Error> {
    let mut pieces = Pieces::of(rest)?;
    let seeds = pieces.addresses(SERVER_PORT)?;
    pieces.take_database(pieces.path.strip_prefix('/').unwrap_or_default())?;
    Ok(pieces.at(Servers::Cluster { seeds }, by_tls))
}

/// The text behind `%41` and the like.
pub(crate) fn decoded<'a>(setting: &'static str, text: &'a str) -> Result<Cow<'a, str>, Error> {
    percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| Error::bad_setting(setting, "what is written with % is not text (UTF-8)"))
}

/// A number of digits, and nothing else.
pub(crate) fn number(text: &str) -> Option<i64> {
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
