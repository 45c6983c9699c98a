//! Deployments of several servers, and with TLS.

use std::process::Command;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock_testkit::{ClusterSet, Login, ReplicaSet, SentinelSet, Shared, TlsServer, eventually};

use crate::{LIMIT, connect, value};

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_their_master_and_can_be_promoted() {
    assert_eq!(ReplicaSet::missing(), None);
    let start = Instant::now();
    let set = ReplicaSet::start(2).await;
    println!("a master and two replicas: {:?}", start.elapsed());
    let mut client = connect(&set.url()).await.expect("a master");
    client.set::<_, _, ()>("n", 1).await.expect("SET");
    let reached: u32 = redis::cmd("WAIT").arg(2).arg(5_000).query_async(&mut client).await.expect("a reply");
    assert_eq!(reached, 2);
    for replica in set.replicas() {
        assert_eq!(value(replica, "n").await, Some(1));
        assert!(replica.client().await.set::<_, _, ()>("n", 2).await.is_err(), "replicas only read");
    }
    set.promote(1).await;
    set.replicas()[1].client().await.set::<_, _, ()>("n", 3).await.expect("a master now");
    assert_eq!((value(set.master(), "n").await, value(&set.replicas()[0], "n").await), (Some(1), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_behind_a_proxy_can_be_cut_off() {
    let set = ReplicaSet::start_behind_proxies(1, &[]).await;
    let mut client = set.master().client().await;
    set.proxy(0).black_hole();
    client.set::<_, _, ()>("n", 1).await.expect("SET");
    let reached: u32 = redis::cmd("WAIT").arg(1).arg(200).query_async(&mut client).await.expect("a reply");
    assert_eq!((reached, value(&set.replicas()[0], "n").await), (0, None));
    set.proxy(0).pass();
    eventually("it catches up", LIMIT, async || value(&set.replicas()[0], "n").await == Some(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_replace_a_killed_master_and_it_returns_as_a_replica() {
    assert_eq!(SentinelSet::missing(), None);
    let start = Instant::now();
    let mut set = SentinelSet::start().await;
    println!("three servers and three sentinels: {:?}", start.elapsed());
    assert!(set.url().starts_with("redis+sentinel://127.0.0.1:") && set.url().ends_with("/the-master"));
    // Twice: in the second round a server has been restarted before.
    for round in 0..2 {
        let start = Instant::now();
        let old = set.kill_master().await;
        let new = set.wait_for_new_master(old).await;
        println!("fail-over: {:?}", start.elapsed());
        assert_ne!(old, new);
        set.servers()[new].client().await.set::<_, _, ()>("n", round).await.expect("a master");
        let start = Instant::now();
        set.bring_back(old).await;
        println!("all back: {:?}", start.elapsed());
        assert_eq!(set.master().await, new);
        assert_eq!(value(&set.servers()[old], "n").await, Some(round));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_replace_a_paused_master_behind_a_password() {
    let login = Login::new("tester", "secret");
    let set = SentinelSet::start_with(Duration::from_millis(500), Some(&login), &[]).await;
    assert!(set.url().starts_with("redis+sentinel://tester:secret@127.0.0.1:"), "{}", set.url());
    let mut anonymous = connect(&format!("redis://{}", set.servers()[0].addr())).await.expect("a connection");
    assert!(anonymous.ping::<()>().await.is_err(), "the password is required");
    let old = set.pause_master().await;
    let new = set.wait_for_new_master(old).await;
    assert_ne!(old, new);
    set.servers()[old].resume();
    set.wait_settled().await;
    assert_eq!(set.master().await, new, "the old master is a replica");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_slots_and_promotes_replicas() {
    assert_eq!(ClusterSet::missing(), None);
    let start = Instant::now();
    let mut set = ClusterSet::start().await;
    println!("six nodes: {:?}", start.elapsed());
    assert_eq!(set.url().split(',').count(), 6);

    let slot = set.slot_of("n").await;
    let (from, to) = (set.owner_of(slot).await, (set.owner_of(slot).await + 1) % 3);
    set.nodes()[from].client().await.set::<_, _, ()>("n", 1).await.expect("the owner");
    let start = Instant::now();
    let mut migration = set.begin_migration(slot, to).await;
    assert_eq!(value(&set.nodes()[from], "n").await, Some(1), "still there");
    assert_eq!(migration.move_keys().await, 1);
    let redirected = set.nodes()[from].client().await.get::<_, Option<i64>>("n").await;
    assert_eq!(redirected.expect_err("redirected").code(), Some("ASK"));
    migration.finish().await;
    println!("a slot moved: {:?}", start.elapsed());
    assert_eq!(set.owner_of(slot).await, to);
    assert_eq!(value(&set.nodes()[to], "n").await, Some(1));
    set.migrate(slot, from).await;
    assert_eq!(value(&set.nodes()[from], "n").await, Some(1), "and back");

    let start = Instant::now();
    let replica = set.partner_of(from);
    set.promote(replica).await;
    println!("a replica promoted: {:?}", start.elapsed());
    assert_eq!(set.owner_of(slot).await, replica);
    let start = Instant::now();
    set.kill(replica).await;
    set.wait_promoted(from).await;
    println!("fail-over: {:?}", start.elapsed());
    assert_eq!((set.owner_of(slot).await, value(&set.nodes()[from], "n").await), (from, Some(1)));
    let start = Instant::now();
    set.restart(replica).await;
    println!("all back: {:?}", start.elapsed());
    assert_eq!(set.owner_of(slot).await, from, "the restarted node is a replica");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_server_checks_certificates() {
    assert_eq!(TlsServer::missing(), None);
    let start = Instant::now();
    let open = TlsServer::start().await;
    println!("a server with TLS: {:?}", start.elapsed());
    assert!(open.url().starts_with(&format!("rediss://localhost:{}?ca_file=", open.tls_port())));
    assert!(ping(&open, &[]).contains("PONG"));
    assert!(
        !ping(&TlsServer::start().await, &["--cacert", &text(&open.certificates().ca_file())])
            .contains("PONG")
    );
    assert!(connect(&format!("redis://127.0.0.1:{}", open.tls_port())).await.is_err(), "TLS only");
    open.server().client().await.set::<_, _, ()>("n", 1).await.expect("the plain port works");

    let strict = TlsServer::start_with(&["redis.example"], true, &[]).await;
    assert!(!ping(&strict, &[]).contains("PONG"), "no certificate");
    let files = strict.certificates();
    let (cert, key) = (text(&files.client_cert_file()), text(&files.client_key_file()));
    assert!(ping(&strict, &["--cert", &cert, "--key", &key]).contains("PONG"));
    let dir = files.dir().to_owned();
    drop(strict);
    assert!(!dir.exists(), "the files are removed");
}

/// Returns the output of `redis-cli PING`. Of two equal options, the last counts.
fn ping(server: &TlsServer, options: &[&str]) -> String {
    let (port, ca) = (server.tls_port().to_string(), text(&server.certificates().ca_file()));
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", &ca])
        .args(options)
        .arg("PING")
        .output()
        .expect("redis-cli can be run");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(path: &std::path::Path) -> String {
    path.to_str().expect("a readable path").to_owned()
}

#[test]
fn a_deployment_is_shared_by_runtimes_until_it_is_closed() {
    static SET: Shared<ReplicaSet> = Shared::new();
    let runtime = || tokio::runtime::Runtime::new().expect("a runtime");
    let port =
        || runtime().block_on(async { SET.get(async || ReplicaSet::start(0).await).await.master().port() });
    let first = port();
    assert_eq!(port(), first);
    let url = format!("redis://127.0.0.1:{first}");
    runtime().block_on(async { connect(&url).await.expect("it outlives the runtime that started it") });
    SET.close();
    assert!(runtime().block_on(connect(&url)).is_err(), "it has ended");
}
