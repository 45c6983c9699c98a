//! Three servers that know nothing of each other. A lock is held on a majority of them.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use turnlock_testkit::{FaultProxy, RedisServer};

use super::network;
use super::server::{self, until_info};
use super::shape::{Fault, Injection, Shape};

/// The servers, each behind a proxy. All of them keep their data.
pub(super) struct Quorum {
    servers: Vec<RedisServer>,
    proxies: Vec<Arc<FaultProxy>>,
}

/// Faults of one server, while the other two are a majority.
const FAULTS: [&str; 2] = ["pause_server", "restart_aof"];

const SIZE: usize = 3;

impl Quorum {
    pub(super) async fn start() -> Self {
        let (mut servers, mut proxies) = (Vec::new(), Vec::new());
        for _ in 0..SIZE {
            let server = RedisServer::start_with(&server::DURABLE).await;
            proxies.push(Arc::new(FaultProxy::start(server.port()).await));
            servers.push(server);
        }
        Self { servers, proxies }
    }

    async fn inject_one(&mut self, fault: &mut Injection<'_>) -> anyhow::Result<()> {
        let number = fault.rng.usize(..SIZE);
        let server = &mut self.servers[number];
        match fault.name {
            "pause_server" => {
                fault.begin(&format!("server {number}"));
                server.pause();
                fault.last().await;
                server.resume();
            }
            "restart_aof" => {
                fault.begin(&format!("server {number}"));
                server.stop().await;
                fault.last().await;
                server.restart().await;
                until_info(server, "persistence", "loading:0").await?;
            }
            _ => server::inject(server, fault).await?,
        }
        Ok(())
    }

    async fn heal_all(&mut self) -> anyhow::Result<()> {
        self.proxies.iter().for_each(|proxy| network::heal(proxy));
        for server in &mut self.servers {
            if !server.is_running() {
                server.restart().await;
            }
            server.resume();
            until_info(server, "persistence", "loading:0").await?;
            server::heal(server).await.context("allow everything")?;
        }
        Ok(())
    }
}

impl Shape for Quorum {
    fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(|proxy| proxy.url()).collect()
    }

    fn faults(&self) -> Vec<Fault> {
        Fault::all(&[&FAULTS[..], &server::FAULTS].concat())
    }

    fn network(&self) -> Vec<Arc<FaultProxy>> {
        self.proxies.clone()
    }

    fn inject<'a>(&'a mut self, fault: &'a mut Injection<'_>) -> BoxFuture<'a, anyhow::Result<()>> {
        self.inject_one(fault).boxed()
    }

    fn heal(&mut self) -> BoxFuture<'_, anyhow::Result<()>> {
        self.heal_all().boxed()
    }

    fn left(&self) -> BoxFuture<'_, anyhow::Result<Vec<String>>> {
        server::left_on(&self.servers).boxed()
    }
}
