use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use turnlock::doctor::ServerOverview;

use crate::escape::{escape, escape_message};

/// A server of the store, as printed by `bench` and `status`.
///
/// Serializes to an object of `--json`. Every field must be documented in `docs/program-json.md`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ServerView {
    address: String,
    version: Option<String>,
    role: Option<String>,
    replicas: Option<u64>,
    #[serde(rename = "latency_us", serialize_with = "micros")]
    pub(super) latency: Option<Duration>,
    /// Why the server did not reply.
    error: Option<String>,
}

impl ServerView {
    pub(super) fn new(server: ServerOverview) -> Self {
        let ServerOverview { address, latency, version, role, replicas, .. } = server;
        let (latency, error) = match latency {
            Ok(latency) => (Some(latency), None),
            Err(error) => (None, Some(error)),
        };
        Self { address, version, role: role.map(|role| role.to_string()), replicas, latency, error }
    }

    /// Describes why the server is not usable.
    pub(super) fn failure(&self) -> Option<String> {
        let error = self.error.as_deref()?;
        Some(format!("{} does not reply: {}", escape(&self.address), escape_message(error)))
    }
}

/// Describes the servers of a store: how many reply, or the address of the only one; version, role, replicas.
///
/// An address that the URL contains is left out.
pub(super) fn describe(servers: &[ServerView], url: &str) -> Vec<String> {
    let mut facts = Vec::new();
    let address = match servers {
        [] => return facts,
        [server] => Some(escape(&server.address)).filter(|address| !url.contains(address)),
        servers => {
            let replying = servers.iter().filter(|server| server.error.is_none()).count();
            Some(format!("{replying} of {} primaries reply", servers.len()))
        }
    };
    facts.extend(address);
    let versions: BTreeSet<_> = servers.iter().filter_map(|server| server.version.as_deref()).collect();
    facts.extend(versions.into_iter().map(escape));
    if let [server] = servers {
        facts.extend(server.role.clone());
    }
    // Not known at all if no server has told it.
    let replicas = servers.iter().filter_map(|server| server.replicas).reduce(|one, other| one + other);
    facts.extend(replicas.map(|replicas| match replicas {
        1 => "1 replica".to_owned(),
        replicas => format!("{replicas} replicas"),
    }));
    facts
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn micros<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64() * 1e6).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, replicas: u64, error: Option<&str>) -> ServerView {
        let latency = error.map_or(Ok(Duration::from_micros(150)), |error| Err(error.to_owned()));
        let mut server = ServerOverview::new(address, latency);
        server.version = error.is_none().then(|| "Redis 7.0.15".to_owned());
        server.role = Some(turnlock::doctor::ServerRole::Primary);
        server.replicas = error.is_none().then_some(replicas);
        ServerView::new(server)
    }

    #[test]
    fn servers_are_described_in_short() {
        let one = [server("h:6379", 1, None)];
        assert_eq!(describe(&one, "redis://h:6379").join(", "), "Redis 7.0.15, primary, 1 replica");
        let by_sentinel = describe(&one, "redis+sentinel://s:1/main").join(", ");
        assert_eq!(by_sentinel, "h:6379, Redis 7.0.15, primary, 1 replica");
        let cluster = [server("a:1", 2, None), server("b:1", 1, None), server("c:1", 0, Some("refused"))];
        let described = describe(&cluster, "redis+cluster://a:1").join(", ");
        assert_eq!(described, "2 of 3 primaries reply, Redis 7.0.15, 3 replicas");
        assert_eq!(cluster[2].failure().as_deref(), Some("c:1 does not reply: refused"));
        assert_eq!(describe(&[], "memory://").len(), 0);
    }
}
