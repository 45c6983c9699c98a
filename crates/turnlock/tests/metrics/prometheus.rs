//! A real Prometheus that scrapes the example service.

use std::fmt::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use turnlock_testkit::{TempDir, eventually, eventually_some};

use crate::LIMIT;
use crate::monitoring::{connect, service, ship_orders};
use crate::monitoring_files::{directory, panel_queries};

/// The panels that have data whatever happens: the others need a loss, a fail-over or replicas.
const ALWAYS_WITH_DATA: [&str; 8] = [
    "Acquires by outcome",
    "Wait",
    "Hold",
    "Waiters",
    "Holds",
    "Lost locks",
    "Store calls",
    "Store latency, p99",
];

/// Returns why a program of Prometheus cannot be run; `None` if it can.
pub(crate) fn missing(program: &str) -> Option<String> {
    let is_found =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    (!is_found).then(|| format!("{program} is not installed (Debian package prometheus)"))
}

/// A Prometheus server, until it is dropped.
struct Prometheus {
    child: Mutex<Child>,
    port: u16,
}

impl Prometheus {
    /// Starts a server that scrapes `target` and evaluates the alert rules. Its data are in the directory.
    async fn start(target: &str) -> (Self, TempDir) {
        let directory = TempDir::new();
        let rules = self::directory().canonicalize().expect("the directory of the rules").join("alerts.yml");
        let config = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 250ms, evaluation_interval: 250ms}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: example, static_configs: [{{targets: ['{target}']}}]}}]\n",
            rules.display()
        );
        std::fs::write(&config, text).expect("the configuration");
        // Another case may take the port before the server does.
        for _ in 0..5 {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = listener.local_addr().expect("an address").port();
            drop(listener);
            let mut command = Command::new("prometheus");
            command
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"));
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let server = Self { child: Mutex::new(command.spawn().expect("prometheus")), port };
            let is_ready = async || {
                let ended = server.child.lock().expect("no panic").try_wait().expect("a child");
                let is_ready = server.get("/api/v1/status/buildinfo").await.is_some();
                if is_ready { Some(true) } else { ended.map(|_| false) }
            };
            if eventually_some("prometheus is ready, or has ended", LIMIT, is_ready).await {
                return (server, directory);
            }
        }
        panic!("prometheus ends at once")
    }

    /// Sends a query. `None` if the server is not ready.
    async fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        serde_json::from_str(response.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns the samples that a query has. `None` if the server is not ready.
    async fn query(&self, query: &str) -> Option<Vec<Value>> {
        let mut path = "/api/v1/query?query=".to_owned();
        query.bytes().for_each(|byte| write!(path, "%{byte:02X}").expect("a text"));
        let reply = self.get(&path).await?;
        assert!(reply["status"] != "error", "{query}: {reply}");
        reply["data"]["result"].as_array().cloned()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let child = self.child.get_mut().expect("no panic");
        let _ = child.kill();
        let _ = child.wait();
    }
}

pub(crate) async fn the_panels_show_the_example_service() {
    let client = connect("memory://monitoring").await.expect("a memory store");
    let workers = [(); 4].map(|()| tokio::spawn(ship_orders(client.clone())));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let target = listener.local_addr().expect("an address").to_string();
    let exporter = crate::recorder::install().clone();
    let server = tokio::spawn(async move { axum::serve(listener, service(exporter)).await });
    let (prometheus, _directory) = Prometheus::start(&target).await;
    eventually("orders are counted", LIMIT, async || {
        let query =
            r#"rate(turnlock_acquisitions_total{job="example",group="orders",outcome="granted"}[5s]) > 0"#;
        prometheus.query(query).await.is_some_and(|samples| !samples.is_empty())
    })
    .await;
    for (title, query) in panel_queries() {
        let mut query = query.replace("$__rate_interval", "5s");
        for variable in ["$job", "$store", "$kind", "$group"] {
            query = query.replace(variable, ".*");
        }
        let is_finite = |sample: &Value| sample["value"][1].as_str().is_some_and(|value| value != "NaN");
        if ALWAYS_WITH_DATA.contains(&&*title) {
            eventually(&format!("{title} has data: {query}"), LIMIT, async || {
                prometheus.query(&query).await.is_some_and(|samples| samples.iter().any(is_finite))
            })
            .await;
        } else {
            prometheus.query(&query).await.expect("a reply");
        }
    }
    let rules = prometheus.get("/api/v1/rules").await.expect("a reply");
    let rules = rules["data"]["groups"][0]["rules"].as_array().cloned().expect("rules");
    assert_eq!(rules.len(), 8);
    eventually("all rules are evaluated without an error", LIMIT, async || {
        let Some(reply) = prometheus.get("/api/v1/rules").await else { return false };
        let rules = reply["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().all(|rule| rule["health"] == "ok")
    })
    .await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    server.abort();
}
