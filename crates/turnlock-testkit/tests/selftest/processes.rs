//! Servers when the program that started them is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use turnlock_testkit::{RedisServer, eventually};

use crate::LIMIT;

/// Set in the program that is killed.
const VICTIM: &str = "TURNLOCK_SELFTEST_VICTIM";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_outlive_a_killed_program() {
    if std::env::var_os(VICTIM).is_some() {
        let servers = [RedisServer::start().await, RedisServer::start().await];
        let mut ended = RedisServer::start().await;
        ended.stop().await;
        // A paused server must end too.
        servers[1].pause();
        println!("\nservers {} {}", servers[0].pid(), servers[1].pid());
        return std::future::pending().await;
    }
    let mut victim = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::a_server_does_not_outlive_a_killed_program", "--nocapture"])
        .env(VICTIM, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let lines = BufReader::new(victim.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map(|line| line.expect("text"));
    let line = lines.find(|line| line.starts_with("servers ")).expect("the servers are started");
    let servers: Vec<u32> = line.split(' ').skip(1).map(|id| id.parse().expect("an id")).collect();
    assert!(servers.iter().all(|id| is_running(*id)));
    victim.kill().expect("the program can be killed");
    victim.wait().expect("the program has exited");
    eventually("the servers have exited", LIMIT, async || !servers.iter().any(|id| is_running(*id))).await;
}

fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // A process that has exited may still be a zombie.
    stat.contains("(redis-server)") && !stat.contains(") Z ")
}
