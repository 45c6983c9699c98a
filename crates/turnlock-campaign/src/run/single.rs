//! One server behind a proxy.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;
use turnlock_testkit::{FaultProxy, RedisServer};

use crate::history::What;
use crate::recorder::Recorder;

/// A server that keeps its data over restarts, behind a proxy that loses and delays.
pub(super) struct Single {
    server: RedisServer,
    proxy: FaultProxy,
}

/// The faults of a single server under which exclusion is promised.
const FAULTS: [&str; 9] = [
    "reset",
    "black_hole",
    "delay",
    "half_open",
    "kill_pubsub",
    "pause_server",
    "restart",
    "script_flush",
    "refuse_connections",
];

impl Single {
    pub(super) async fn start() -> Self {
        let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        let proxy = FaultProxy::start(server.port()).await;
        Self { server, proxy }
    }

    pub(super) fn url(&self) -> String {
        self.proxy.url()
    }

    /// Injects one fault, and ends it.
    pub(super) async fn disturb(&mut self, recorder: &Recorder, rng: &mut Rng) {
        let name = FAULTS[rng.usize(..FAULTS.len())];
        let lasts = Duration::from_millis(if rng.bool() { rng.u64(10..500) } else { rng.u64(500..5_000) });
        recorder.record(0, What::fault(name, &format!("{lasts:?}"), false));
        match name {
            "reset" => self.proxy.reset_all(),
            "black_hole" => {
                self.proxy.black_hole();
                sleep(lasts).await;
                self.proxy.pass();
            }
            "delay" => {
                self.proxy.delay(lasts / 20);
                sleep(lasts).await;
                self.proxy.pass();
            }
            // New connections are refused, and those that are open get nothing.
            "half_open" => {
                self.proxy.refuse(true);
                self.proxy.black_hole();
                sleep(lasts).await;
                self.proxy.refuse(false);
                self.proxy.pass();
            }
            "kill_pubsub" => drop(self.server.query::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await),
            "pause_server" => {
                self.server.pause();
                sleep(lasts).await;
                self.server.resume();
            }
            "restart" => {
                self.server.stop().await;
                sleep(lasts / 4).await;
                self.server.restart().await;
            }
            "script_flush" => drop(self.server.query::<String>(&["SCRIPT", "FLUSH"]).await),
            _ => {
                self.proxy.refuse(true);
                self.proxy.reset_all();
                sleep(lasts).await;
                self.proxy.refuse(false);
            }
        }
        recorder.record(0, What::fault(name, "", true));
    }

    pub(super) async fn heal(&mut self) {
        self.proxy.refuse(false);
        self.proxy.pass();
        if !self.server.is_running() {
            self.server.restart().await;
        }
    }

    /// The keys that are left and should not be. Those of semaphores, clients and requests stay.
    pub(super) async fn held(&self) -> Vec<String> {
        let keys = self
            .server
            .query::<Vec<String>>(&["KEYS", "*"])
            .await
            .unwrap_or_else(|error| vec![error.to_string()]);
        let mut keys: Vec<_> = keys.into_iter().filter(|key| !is_kept(key)).collect();
        keys.sort();
        keys
    }
}

/// Returns `true` for keys that outlast the holds: numbers of permits, tokens and records that expire.
fn is_kept(key: &str) -> bool {
    ["semaphore-", "permits-", "turnlock_", "{", "redisson_lock_token"]
        .iter()
        .any(|start| key.starts_with(start))
}
