//! What becomes of servers when whoever started them is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use turnlock_testkit::{RedisServer, eventually};

use crate::LIMIT;

/// Set in the program that is going to be killed.
const VICTIM: &str = "TURNLOCK_SELFTEST_VICTIM";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_outlive_a_killed_program() {
    if std::env::var_os(VICTIM).is_some() {
        let servers = [RedisServer::start().await, RedisServer::start().await];
        let mut ended = RedisServer::start().await;
        ended.stop().await;
        // A frozen one must go as well.
        servers[1].pause();
        println!("\nservers {} {}", servers[0].pid(), servers[1].pid());
        return std::future::pending().await;
    }
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::a_server_does_not_outlive_a_killed_program", "--nocapture"])
        .env(VICTIM, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let lines = BufReader::new(victim.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map(|line| line.expect("text"));
    let line = lines.find(|line| line.starts_with("servers ")).expect("it starts its servers");
    let servers: Vec<u32> = line.split(' ').skip(1).map(|id| id.parse().expect("an id")).collect();
    assert!(servers.iter().all(|id| runs(*id)));
    victim.kill().expect("it can be killed");
    victim.wait().expect("it has ended");
    eventually("its servers have ended", LIMIT, async || !servers.iter().any(|id| runs(*id))).await;
}

fn runs(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // One that has ended may wait for somebody to take note.
    stat.contains("(redis-server)") && !stat.contains(") Z ")
}
