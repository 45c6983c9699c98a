use std::net::Ipv6Addr;

use turnlock_store::{FromText, Secret, SettingError, percent_decode};
use url::Host;

use super::{RedisSettings, Servers};
use crate::access::Address;

/// The default port of a server.
const SERVER_PORT: u16 = 6379;
/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// A URL of Redis. Its parameters are not parsed yet.
///
/// Split by hand, because several hosts are not valid in a standard URL. An error shows no part of the text that can
/// belong to a password, even if a character of the password was not encoded.
#[derive(Clone, Debug)]
pub struct RedisUrl<'a> {
    /// The servers.
    pub servers: Servers,
    /// `true` if connections use TLS.
    pub use_tls: bool,
    /// The user, the password and the database.
    pub settings: RedisSettings,
    /// The parameters, after the `?`.
    pub query: &'a str,
}

impl<'a> RedisUrl<'a> {
    /// Parses what follows `scheme://`. Returns `None` if the scheme is not one of Redis.
    pub fn parse(scheme: &str, rest: &'a str) -> Result<Option<Self>, SettingError> {
        let (program, shape) = match scheme {
            "unix" => ("redis", "unix"),
            _ => scheme.split_once('+').unwrap_or((scheme, "server")),
        };
        let use_tls = match program {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Ok(None),
        };
        let parse_servers = match shape {
            "server" if !scheme.contains('+') => one_server,
            "unix" if !use_tls => unix_socket,
            "sentinel" => sentinels,
            "cluster" => cluster,
            _ => return Ok(None),
        };
        let mut parts = UrlParts::parse(rest)?;
        let servers = parse_servers(&mut parts)?;
        Ok(Some(Self { servers, use_tls, settings: parts.settings, query: parts.query }))
    }
}

impl Servers {
    /// Sentinels by their addresses, `host` or `host:port`, and the name of the master.
    pub fn sentinels(master: &str, sentinels: &[impl AsRef<str>]) -> Result<Self, SettingError> {
        let sentinels = parse_addresses("sentinels", sentinels, SENTINEL_PORT)?;
        Ok(Self::Sentinels { sentinels, master: master.to_owned() })
    }

    /// A cluster by the addresses of some of its nodes, `host` or `host:port`.
    pub fn cluster(seeds: &[impl AsRef<str>]) -> Result<Self, SettingError> {
        Ok(Self::Cluster { seeds: parse_addresses("seeds", seeds, SERVER_PORT)? })
    }
}

/// The parts of a URL after `scheme://`.
struct UrlParts<'a> {
    hosts: Vec<&'a str>,
    /// Without the leading slash.
    path: &'a str,
    query: &'a str,
    settings: RedisSettings,
}

impl<'a> UrlParts<'a> {
    fn parse(rest: &'a str) -> Result<Self, SettingError> {
        const ENCODE: &str =
            "write the characters / ? # @ in a user, a password or a name as %2F %3F %23 %40";
        if rest.contains('#') {
            return Err(bad(format!("it contains a #; {ENCODE}")));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = before.split_once('/').unwrap_or((before, ""));
        // A password with a slash ends up in the path. Only the path of a socket has no host and no user before it.
        if query.contains('@') || (path.contains('@') && !authority.is_empty()) {
            return Err(bad(format!("it contains an @ after the host; {ENCODE}")));
        }
        let mut settings = RedisSettings::default();
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match credentials.split_once(':') {
            None => (credentials, None),
            Some((user, password)) => (user, Some(password)),
        };
        if !user.is_empty() {
            settings.user = Some(percent_decode("user", user)?.into_owned());
        }
        if let Some(password) = password {
            settings.password = Some(Secret::new(percent_decode("password", password)?));
        }
        Ok(Self { hosts: hosts.split(',').collect(), path, query, settings })
    }

    /// Sets the database from a segment of the path.
    fn set_database(&mut self, segment: &str) -> Result<(), SettingError> {
        if !segment.is_empty() {
            let database = u32::from_text(segment);
            let database = database.map_err(|_| bad("the database after the host is not a number"))?;
            self.settings.database = Some(database);
        }
        Ok(())
    }
}

fn one_server(parts: &mut UrlParts<'_>) -> Result<Servers, SettingError> {
    let [address] = &parse_addresses("url", &parts.hosts, SERVER_PORT)?[..] else {
        return Err(bad(
            "several hosts; use redis+sentinel:// for sentinels, redis+cluster:// for a cluster",
        ));
    };
    parts.set_database(parts.path)?;
    Ok(Servers::One(address.clone()))
}

fn unix_socket(parts: &mut UrlParts<'_>) -> Result<Servers, SettingError> {
    if parts.hosts != [""] || parts.path.is_empty() {
        return Err(bad("not the absolute path of a Unix socket; write it as redis+unix:///run/redis.sock"));
    }
    let path = format!("/{}", percent_decode("url", parts.path)?);
    Ok(Servers::One(Address::unix(path)))
}

fn sentinels(parts: &mut UrlParts<'_>) -> Result<Servers, SettingError> {
    let sentinels = parse_addresses("url", &parts.hosts, SENTINEL_PORT)?;
    let (master, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
    parts.set_database(database)?;
    let master = percent_decode("master_name", master)?.into_owned();
    Ok(Servers::Sentinels { sentinels, master })
}

fn cluster(parts: &mut UrlParts<'_>) -> Result<Servers, SettingError> {
    let seeds = parse_addresses("url", &parts.hosts, SERVER_PORT)?;
    parts.set_database(parts.path)?;
    Ok(Servers::Cluster { seeds })
}

fn parse_addresses(
    setting: &'static str,
    texts: &[impl AsRef<str>],
    default_port: u16,
) -> Result<Vec<Address>, SettingError> {
    let parse = |(index, text): (usize, &_)| {
        parse_address(AsRef::as_ref(text), default_port).map_err(|reason| match texts.len() {
            1 => SettingError::new(setting, reason),
            count => SettingError::new(setting, format!("address {} of {count}: {reason}", index + 1)),
        })
    };
    texts.iter().enumerate().map(parse).collect()
}

/// Parses `host[:port]`. An IPv6 address is in brackets.
fn parse_address(text: &str, default_port: u16) -> Result<Address, &'static str> {
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
        Some(port) => match u32::from_text(port).map(u16::try_from) {
            Ok(Ok(port @ 1..)) => port,
            _ => return Err("the port is not a number from 1 to 65535"),
        },
    };
    Ok(Address::tcp(&host, port))
}

fn bad(reason: impl Into<String>) -> SettingError {
    SettingError::new("url", reason)
}
