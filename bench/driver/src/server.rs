use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};
use turnlock_testkit::RedisServer;

/// The number of keys in one `EXISTS`.
const KEYS: usize = 1_000;
/// The masters of the cluster, with the first and the last slot of each.
const MASTERS: [(&str, &str); 3] = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];

/// A server, or the masters of a cluster, with the driver's own connection to each.
pub(crate) struct Server {
    nodes: Vec<(RedisServer, MultiplexedConnection)>,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, String> {
        Self::start_nodes(1, &[]).await
    }

    /// Starts a cluster, and returns once all masters agree that it is complete.
    pub(crate) async fn start_cluster() -> Result<Self, String> {
        let cluster = Self::start_nodes(MASTERS.len(), &["--cluster-enabled", "yes"]).await?;
        let first = &cluster.nodes[0].1;
        for (((node, connection), (from, to)), epoch) in cluster.nodes.iter().zip(MASTERS).zip(1..) {
            query::<()>(connection, &["CLUSTER", "ADDSLOTSRANGE", from, to]).await?;
            query::<()>(connection, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch.to_string()]).await?;
            if epoch > 1 {
                query::<()>(first, &["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]).await?;
            }
        }
        for _ in 0..400 {
            if cluster.is_complete().await? {
                return Ok(cluster);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("the masters did not form a cluster within 20 s".to_owned())
    }

    async fn start_nodes(count: usize, args: &[&str]) -> Result<Self, String> {
        if let Some(reason) = RedisServer::missing() {
            return Err(format!("cannot start redis-server: {reason}"));
        }
        let mut nodes = Vec::new();
        for _ in 0..count {
            let node = RedisServer::start_with(&[&["--loglevel", "warning"], args].concat()).await;
            let connection = node.client().await;
            nodes.push((node, connection));
        }
        Ok(Self { nodes })
    }

    async fn is_complete(&self) -> Result<bool, String> {
        for (_, connection) in &self.nodes {
            let info: String = query(connection, &["CLUSTER", "INFO"]).await?;
            if !info.contains("cluster_state:ok") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The port of each node.
    pub(crate) fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|(node, _)| node.port()).collect()
    }

    /// The product and version of the server.
    pub(crate) async fn version(&self) -> String {
        self.nodes[0].0.version().await
    }

    pub(crate) async fn flush(&self) -> Result<(), String> {
        for (_, connection) in &self.nodes {
            query::<()>(connection, &["FLUSHALL"]).await?;
        }
        Ok(())
    }

    /// The number of calls of each command on all nodes since they started.
    pub(crate) async fn calls(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for (node, _) in &self.nodes {
            for (command, calls) in node.calls().await.iter() {
                *all.entry(command.to_owned()).or_default() += calls;
            }
        }
        all
    }

    /// Processor time of all nodes so far, in seconds; more precise than that of other processes.
    pub(crate) async fn cpu(&self) -> Result<f64, String> {
        let mut all = 0.0;
        for (_, connection) in &self.nodes {
            let info: String = query(connection, &["INFO", "cpu"]).await?;
            let part = |key| field(&info, key).and_then(|value| value.parse::<f64>().ok());
            let used = part("used_cpu_user").zip(part("used_cpu_sys")).map(|(user, system)| user + system);
            all += used.ok_or("the server does not report its processor time")?;
        }
        Ok(all)
    }

    /// The number of these keys that exist on a single server.
    pub(crate) async fn count_existing(&self, names: &[String]) -> Result<u64, String> {
        let mut existing = 0;
        for batch in names.chunks(KEYS) {
            let found: RedisResult<u64> =
                redis::cmd("EXISTS").arg(batch).query_async(&mut self.nodes[0].1.clone()).await;
            existing += found.map_err(|error| error.to_string())?;
        }
        Ok(existing)
    }

    /// Waits until only the driver is connected, so that no old client is counted for the next measurement.
    pub(crate) async fn until_disconnected(&self) {
        for (_, connection) in &self.nodes {
            for _ in 0..200 {
                let info: String = query(connection, &["INFO", "clients"]).await.unwrap_or_default();
                if field(&info, "connected_clients") == Some("1") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn query<T: FromRedisValue>(connection: &MultiplexedConnection, words: &[&str]) -> Result<T, String> {
    let (first, rest) = words.split_first().expect("a command has a name");
    let reply = redis::cmd(first).arg(rest).query_async(&mut connection.clone()).await;
    reply.map_err(|error| format!("{}: {error}", words.join(" ")))
}

fn field<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_is_found_by_its_full_name() {
        let info = "# CPU\r\nused_cpu_user_main:1.5\r\nused_cpu_user:2.5\r\n";
        assert_eq!(field(info, "used_cpu_user"), Some("2.5"));
        assert_eq!(field(info, "used_cpu"), None);
    }
}
