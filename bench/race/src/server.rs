use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use turnlock_testkit::{Calls, RedisServer};

/// How many names one question has.
const NAMES: usize = 1_000;

/// The server that everybody is measured on, and the driver's own connection to it.
pub(crate) struct Server {
    server: RedisServer,
    connection: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, String> {
        if let Some(reason) = RedisServer::missing() {
            return Err(format!("nothing can be measured: {reason}"));
        }
        let server = RedisServer::start_with(&["--loglevel", "warning"]).await;
        let connection = server.client().await;
        Ok(Self { server, connection })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Its version, for the tables.
    pub(crate) async fn version(&self) -> String {
        let info = self.info("server").await.unwrap_or_default();
        field(&info, "redis_version").unwrap_or("of an unknown version").to_owned()
    }

    pub(crate) async fn flush(&self) -> Result<(), String> {
        let flushed: RedisResult<()> = redis::cmd("FLUSHALL").query_async(&mut self.connection.clone()).await;
        flushed.map_err(|error| error.to_string())
    }

    /// How often each command was run since the server started.
    pub(crate) async fn calls(&self) -> Calls {
        self.server.calls().await
    }

    /// Processor time that the server has used, in seconds; finer than what the kernel tells of other processes.
    pub(crate) async fn cpu(&self) -> Result<f64, String> {
        let info = self.info("cpu").await?;
        let part = |key| field(&info, key).and_then(|value| value.parse::<f64>().ok());
        let used = part("used_cpu_user").zip(part("used_cpu_sys")).map(|(user, system)| user + system);
        used.ok_or_else(|| "the server does not tell its processor time".to_owned())
    }

    /// How many of these keys are there.
    pub(crate) async fn count(&self, names: &[String]) -> Result<u64, String> {
        let mut there = 0;
        for some in names.chunks(NAMES) {
            let found: RedisResult<u64> =
                redis::cmd("EXISTS").arg(some).query_async(&mut self.connection.clone()).await;
            there += found.map_err(|error| error.to_string())?;
        }
        Ok(there)
    }

    /// Waits until nobody but the driver is connected, so that no leaving client is counted for the next one.
    pub(crate) async fn settle(&self) {
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
    fn a_field_is_found_by_its_whole_name() {
        let info = "# CPU\r\nused_cpu_user_main:1.5\r\nused_cpu_user:2.5\r\n";
        assert_eq!(field(info, "used_cpu_user"), Some("2.5"));
        assert_eq!(field(info, "used_cpu"), None);
    }
}
