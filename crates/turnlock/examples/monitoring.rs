//! A service whose metrics Prometheus can scrape: `GET /metrics`.
//!
//! The dashboard and the alert rules in `docs/monitoring` show what it does with its locks.
//!
//! ```text
//! cargo run --features metrics --example monitoring                                      # starts, checks itself, and ends
//! cargo run --features metrics --example monitoring -- redis://127.0.0.1 127.0.0.1:9184  # serves until Ctrl-C
//! ```

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use turnlock::Client;
use turnlock::metrics::{BATCH_SIZES, SECONDS};

/// Returns an exporter with buckets for the histograms: without them, it would show quantiles of each process.
pub fn exporter() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_batch_holds".to_owned()), BATCH_SIZES)?
        .set_buckets_for_metric(Matcher::Suffix("_batch_steps".to_owned()), BATCH_SIZES)
}

/// Connects to the store. "orders:42" counts as a lock of the group "orders".
pub async fn connect(url: &str) -> Result<Client, turnlock::Error> {
    Client::builder().metrics_group(|name| name.split_once(':').map(|(group, _)| group)).connect(url).await
}

/// Serves the metrics to Prometheus.
pub fn service(exporter: PrometheusHandle) -> Router {
    Router::new().route("/metrics", get(move || std::future::ready(exporter.render())))
}

/// Stands for the work of the service: a few orders at a time, each under its lock.
pub async fn ship_orders(client: Client) -> Result<(), turnlock::Error> {
    for order in 0.. {
        let guard = client.lock(&format!("orders:{}", order % 3)).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        guard.unlock().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory://".to_owned());
    let address = arguments.next();
    // Before the first client: what it has looked up earlier would go nowhere.
    let exporter = exporter()?.install_recorder()?;
    // What the histograms collect stays in memory until it is rendered, or until this.
    let upkeep = exporter.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let client = connect(&url).await?;
    let workers = [(); 4].map(|()| tokio::spawn(ship_orders(client.clone())));
    if let Some(address) = address {
        println!("metrics: http://{address}/metrics");
        axum::serve(TcpListener::bind(address).await?, service(exporter)).await?;
    } else {
        let is_counted = |line: &str| {
            line.starts_with("turnlock_acquisitions_total{")
                && line.contains("granted")
                && !line.ends_with(" 0")
        };
        let counted = async {
            while !exporter.render().lines().any(is_counted) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_in_time = tokio::time::timeout(Duration::from_secs(30), counted).await.is_ok();
        println!("acquires are counted: {is_in_time}");
    }
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}
