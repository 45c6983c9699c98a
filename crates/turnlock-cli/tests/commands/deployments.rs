//! Several servers: `status` of replicas, sentinels and a cluster; other commands on a cluster.

use std::sync::Arc;

use turnlock_testkit::{ClusterSet, ReplicaSet, SentinelSet};

use crate::fixture::Fixture;
use crate::program::{Ended, Program};
use crate::{CaseFuture, ls_and_show, status, watch};

/// A case that starts its own servers, with its name.
type Case = (&'static str, fn() -> CaseFuture);

pub(crate) const CASES: &[Case] = &[
    ("replicas_are_counted_and_a_replica_is_critical", || {
        Box::pin(replicas_are_counted_and_a_replica_is_critical())
    }),
    ("sentinels_lead_to_the_address_of_the_primary", || {
        Box::pin(sentinels_lead_to_the_address_of_the_primary())
    }),
    ("locks_of_a_cluster_are_listed_shown_watched_and_examined", || {
        Box::pin(locks_of_a_cluster_are_listed_shown_watched_and_examined())
    }),
    ("a_cluster_has_its_primaries_counted", || Box::pin(a_cluster_has_its_primaries_counted())),
];

/// Runs `status` with time for many servers on a busy machine.
async fn status_of(url: &str) -> Ended {
    let arguments = [&["status", "--timeout", "20s", "--ignore", "replication", url], &status::IGNORED[..]];
    Program::new(&arguments.concat()).run().await
}

async fn replicas_are_counted_and_a_replica_is_critical() {
    let set = ReplicaSet::start(2).await;
    let ended = status_of(&set.url()).await;
    assert!(ended.code == Some(0) && ended.out.contains(", primary, 2 replicas, "), "{ended:?}");
    let ended = Program::new(&["status", &set.url()]).run().await;
    assert!(ended.code == Some(2) && ended.out.contains("doctor: danger ("), "{ended:?}");
    let ended = Program::new(&["status", &set.replicas()[0].url()]).run().await;
    assert!(ended.code == Some(2) && ended.out.contains("replica"), "{ended:?}");
}

async fn sentinels_lead_to_the_address_of_the_primary() {
    let set = SentinelSet::start().await;
    let ended = status_of(&set.url()).await;
    let primary = format!(": 127.0.0.1:{}, Redis ", set.servers()[set.master().await].port());
    assert!(ended.code == Some(0) && ended.out.contains(&primary), "{ended:?}");
    assert!(ended.out.contains(", primary, "), "{ended:?}");
}

async fn locks_of_a_cluster_are_listed_shown_watched_and_examined() {
    let cluster = Arc::new(ClusterSet::start().await);
    for (name, case) in [watch::CLUSTER_CASES, ls_and_show::CLUSTER_CASES].concat() {
        println!("{name} on a cluster");
        case(Fixture::on_cluster(&cluster)).await;
        for node in cluster.nodes() {
            // An error: it is a replica.
            let _ = node.query::<String>(&["FLUSHALL"]).await;
        }
    }
}

async fn a_cluster_has_its_primaries_counted() {
    let mut set = ClusterSet::start().await;
    let ended = status_of(&set.url()).await;
    let expected = ": 3 of 3 primaries reply, Redis ";
    assert!(ended.code == Some(0) && ended.out.contains(expected), "{ended:?}");
    assert!(ended.out.contains(", 3 replicas, "), "{ended:?}");
    // The replica first, so that no other node takes over.
    set.kill(set.partner_of(0)).await;
    set.kill(0).await;
    let ended = status_of(&set.url()).await;
    let port = set.nodes()[0].port();
    let expected = format!("127.0.0.1:{port} does not reply: ");
    assert!(ended.code == Some(2) && ended.out.contains(&expected), "{ended:?}");
    assert!(ended.out.contains("2 of 3 primaries reply"), "{ended:?}");
}
