#[cfg(all(feature = "file", unix))]
use std::path::PathBuf;

#[cfg(all(feature = "file", unix))]
use turnlock_file::FileSettings;
#[cfg(feature = "redis")]
use turnlock_redis::{RedisUrl, Servers};

use super::Settings;
use crate::error::Error;

/// A parsed store URL.
///
/// Only its scheme is read here: each store parses the rest.
#[derive(Clone, Debug)]
pub(super) struct StoreUrl {
    pub(super) store: Location,
    pub(super) settings: Settings,
}

/// A store, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// An empty name is the default store of the process.
    Memory { name: String },
    /// An empty path is the default file of the user.
    #[cfg(all(feature = "file", unix))]
    File { path: PathBuf },
    #[cfg(feature = "redis")]
    Redis { servers: Servers, use_tls: bool },
}

impl StoreUrl {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(':').ok_or_else(|| not_a_url(text))?;
        let mut settings = Settings::default();
        let store = match (&*scheme.to_ascii_lowercase(), rest.strip_prefix("//")) {
            ("memory", _) => memory(rest, &mut settings)?,
            ("file", _) => file(rest, &mut settings)?,
            (_, None) => return Err(not_a_url(text)),
            (scheme, Some(rest)) => redis(scheme, rest, &mut settings)?,
        };
        Ok(Self { store, settings })
    }
}

/// Returns the scheme of the URL of these servers.
#[cfg(feature = "redis")]
pub(super) fn scheme_of(servers: &Servers, use_tls: bool) -> &'static str {
    match (servers, use_tls) {
        (Servers::One(_), false) => "redis",
        (Servers::One(_), true) => "rediss",
        (Servers::Sentinels { .. }, false) => "redis+sentinel",
        (Servers::Sentinels { .. }, true) => "rediss+sentinel",
        (Servers::Cluster { .. }, false) => "redis+cluster",
        (Servers::Cluster { .. }, true) => "rediss+cluster",
    }
}

fn memory(rest: &str, settings: &mut Settings) -> Result<Location, Error> {
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A password with a question mark ends up in the parameters, and an error could show it.
    if query.contains('@') {
        return Err(bad(
            "a parameter contains an @: write %40 for it; a memory store has no user and no password",
        ));
    }
    let name = match name.strip_prefix("//") {
        None => "",
        Some(name) => name.split_once('/').map_or(name, |(name, _)| name),
    };
    if name.contains(|c: char| c.is_whitespace() || c.is_control() || "#%:<>@[]\\^|".contains(c)) {
        return Err(bad("not the name of a memory store; write it as memory://NAME"));
    }
    settings.set_parameters(query)?;
    Ok(Location::Memory { name: name.to_owned() })
}

#[cfg(all(feature = "file", unix))]
fn file(rest: &str, settings: &mut Settings) -> Result<Location, Error> {
    let (path, file) = FileSettings::parse_url(rest)?;
    settings.file = file;
    Ok(Location::File { path })
}

#[cfg(not(all(feature = "file", unix)))]
fn file(_: &str, _: &mut Settings) -> Result<Location, Error> {
    Err(Error::Unsupported("a file store needs the feature `file` and a Unix system".to_owned()))
}

#[cfg(feature = "redis")]
fn redis(scheme: &str, rest: &str, settings: &mut Settings) -> Result<Location, Error> {
    let RedisUrl { servers, use_tls, settings: redis, query } =
        RedisUrl::parse(scheme, rest)?.ok_or_else(unknown_scheme)?;
    settings.redis = redis;
    settings.set_parameters(query)?;
    Ok(Location::Redis { servers, use_tls })
}

#[cfg(not(feature = "redis"))]
fn redis(scheme: &str, _: &str, _: &mut Settings) -> Result<Location, Error> {
    if ["redis", "valkey", "unix"].iter().any(|known| scheme.starts_with(known)) {
        let reason = "a Redis store needs the feature `redis`; enable the feature";
        return Err(Error::Unsupported(reason.to_owned()));
    }
    Err(unknown_scheme())
}

fn unknown_scheme() -> Error {
    bad("unknown scheme; the known ones are redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, \
         redis+cluster, rediss+cluster, file and memory")
}

/// The error for a text that is not a URL. It shows only a path or an address: another text may be a password.
fn not_a_url(text: &str) -> Error {
    let is_host =
        |host: &str| !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let is_address =
        text.split_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok());
    if text.is_empty() {
        return bad("empty; write redis://HOST:PORT for a server, or file:PATH for a file");
    }
    if is_address {
        return bad(&format!("not a URL; write redis://{text}"));
    }
    if text.starts_with('/') && !text.contains('@') {
        return bad(&format!("not a URL; write file:{text}"));
    }
    bad("not a URL; write redis://HOST:PORT for a server, or file:PATH for a file")
}

fn bad(reason: &str) -> Error {
    Error::bad_setting("url", reason)
}

#[cfg(all(test, feature = "redis"))]
#[path = "tests/store_url.rs"]
mod tests;

#[cfg(all(test, not(feature = "redis")))]
mod tests_without_redis {
    use super::*;

    #[test]
    fn redis_needs_the_feature() {
        for url in ["redis://h", "rediss+cluster://h", "valkey://h", "unix:///run/x"] {
            let error = StoreUrl::parse(url).expect_err("built without Redis");
            assert!(matches!(&error, Error::Unsupported(text) if text.contains("`redis`")), "{url}: {error}");
        }
        let error = StoreUrl::parse("http://h").expect_err("an unknown scheme");
        assert!(matches!(&error, Error::BadConfiguration { setting: "url", .. }), "{error}");
    }
}
