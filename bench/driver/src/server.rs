use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use turnlock_testkit::{Calls, RedisServer};

/// The number of keys in one `EXISTS`.
const KEYS: usize = 1_000;

/// The server for all measurements, and the driver's own connection to it.
pub(crate) struct Server {
    server: RedisServer,
    connection: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, String> {
        if let Some(reason) = RedisServer::missing() {
            return Err(format!("cannot start redis-server: {reason}"));
        }
        let server = RedisServer::start_with(&["--loglevel", "warning"]).await;
        let connection = server.client().await;
        Ok(Self { server, connection })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// The version of the server.
    pub(crate) async fn version(&self) -> String {
        let info = self.info("server").await.unwrap_or_default();
        field(&info, "redis_version").unwrap_or("of an unknown version").to_owned()
    }

    pub(crate) async fn flush(&self) -> Result<(), String> {
        let flushed: RedisResult<()> = redis::cmd("FLUSHALL").query_async(&mut self.connection.clone()).await;
        flushed.map_err(|error| error.to_string())
    }

    /// The number of calls of each command since the server started.
    pub(crate) async fn calls(&self) -> Calls {
        self.server.calls().await
    }

    /// Processor time of the server so far, in seconds; more precise than that of other processes.
    pub(crate) async fn cpu(&self) -> Result<f64, String> {
        let info = self.info("cpu").await?;
        let part = |key| field(&info, key).and_then(|value| value.parse::<f64>().ok());
        let used = part("used_cpu_user").zip(part("used_cpu_sys")).map(|(user, system)| user + system);
        used.ok_or_else(|| "the server does not report its processor time".to_owned())
    }

    /// The number of these keys that exist.
    pub(crate) async fn count_existing(&self, names: &[String]) -> Result<u64, String> {
        let mut existing = 0;
        for batch in names.chunks(KEYS) {
            let found: RedisResult<u64> =
                redis::cmd("EXISTS").arg(batch).query_async(&mut self.connection.clone()).await;
            existing += found.map_err(|error| error.to_string())?;
        }
        Ok(existing)
    }

    /// Waits until only the driver is connected, so that no old client is counted for the next measurement.
    pub(crate) async fn until_disconnected(&self) {
        for _ in 0..200 {
            let info = self.info("clients").await.unwrap_or_default();
            if field(&info, "connected_clients") == Some("1") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn info(&self, section: &str) -> Result<String, String> {
        let info = redis::cmd("INFO").arg(section).query_async(&mut self.connection.clone()).await;
        info.map_err(|error| error.to_string())
    }
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
