//! The doctor finds what was made wrong on purpose, and nothing where nothing is.

use libtest_mimic::Trial;
use redis::AsyncCommands;
use turnlock::acl::{AclRule, Primitive};
use turnlock::doctor::{Finding, Level, Report, Topic};
use turnlock::{Client, blocking};
use turnlock_testkit::{ClusterSet, FaultProxy, RedisServer, ReplicaSet};

use crate::rig::ms;
use crate::{CaseFuture, trial_of};

type DoctorCase = (&'static str, fn() -> CaseFuture);

/// Names an `async fn()` as a case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), || Box::pin($case()))),*] };
}

const CASES: &[DoctorCase] = cases![
    a_well_kept_server_has_no_troubles,
    a_server_that_forgets_is_told,
    a_server_that_throws_locks_away_is_told,
    a_master_that_goes_on_without_its_replicas_is_told,
    a_server_that_hangs_up_early_is_told,
    a_slow_server_is_told,
    a_right_that_lacks_is_told_with_the_rule,
    a_channel_that_lacks_is_told,
    one_who_may_only_lock_some_names_is_told_what_else_it_may_not,
    the_least_rule_with_the_doctors_is_enough,
    every_master_of_a_cluster_is_looked_at,
    the_least_rule_of_a_cluster_is_enough_and_the_least,
    a_server_that_is_gone_is_told,
    memory_has_no_server,
];

/// The cases that need a server with a clock of its own.
const CLOCK_CASES: &[DoctorCase] = cases![a_clock_that_is_far_off_is_told];

pub(crate) fn trials(missing: Option<&str>) -> impl Iterator<Item = Trial> {
    let missing = missing.map(str::to_owned);
    let missing_clock = missing.clone().or_else(RedisServer::clock_shift_missing);
    let cases = CASES.iter().map(move |case| (case, missing.clone()));
    let clock_cases = CLOCK_CASES.iter().map(move |case| (case, missing_clock.clone()));
    cases
        .chain(clock_cases)
        .map(|((name, case), missing)| trial_of(&format!("doctor::{name}"), missing, case))
}

/// A server as it should be.
const WELL_KEPT: &[&str] = &["--appendonly", "yes"];

async fn examined(url: &str) -> Report {
    let client = Client::connect(url).await.expect("a server");
    // As a task, so that it is seen to be one that can be sent.
    tokio::spawn(async move { examined_calmly(&client).await }).await.expect("no panic")
}

/// Looks again where an answer was late, as on a busy machine: a few times at most.
async fn examined_calmly(client: &Client) -> Report {
    for _ in 0..4 {
        let report = client.doctor().await;
        if !all_troubles(&report).contains(&LATE) {
            return report;
        }
    }
    client.doctor().await
}

fn found(report: &Report, level: Level, topic: Topic) -> &Finding {
    let finding = report.findings.iter().find(|finding| (finding.level, finding.topic) == (level, topic));
    finding.unwrap_or_else(|| panic!("no {level} about {topic} in:\n{report}"))
}

/// What a busy machine may be to blame for: an answer that came late.
const LATE: (Level, Topic) = (Level::Warning, Topic::Latency);

/// What is wrong with the server, and not with the machine.
fn troubles(report: &Report) -> Vec<(Level, Topic)> {
    let mut troubles = all_troubles(report);
    troubles.retain(|trouble| *trouble != LATE);
    troubles
}

fn all_troubles(report: &Report) -> Vec<(Level, Topic)> {
    report.troubles().map(|finding| (finding.level, finding.topic)).collect()
}

async fn keys(server: &RedisServer) -> Vec<String> {
    server.client().await.keys("*").await.expect("keys")
}

async fn settings(server: &RedisServer) -> Vec<(String, String)> {
    let mut settings: Vec<_> = server.ask(&["CONFIG", "GET", "*"]).await.expect("settings");
    settings.sort();
    settings
}

async fn a_well_kept_server_has_no_troubles() {
    let server = RedisServer::start_with(WELL_KEPT).await;
    let before = settings(&server).await;
    let report = examined(&server.url()).await;
    assert_eq!((report.worst(), troubles(&report)), (Level::Fine, vec![]), "{report}");
    for topic in [Topic::Server, Topic::Persistence, Topic::Eviction, Topic::Clock, Topic::Latency] {
        let finding = found(&report, Level::Fine, topic);
        assert_eq!(finding.server, Some(server.addr().to_string()));
    }
    found(&report, Level::Fine, Topic::Rights);
    found(&report, Level::Fine, Topic::Messages);
    assert_eq!(keys(&server).await, Vec::<String>::new(), "nothing is left");
    assert_eq!(settings(&server).await, before, "nothing is changed");
}

async fn a_server_that_forgets_is_told() {
    let server = RedisServer::start().await;
    let report = examined(&server.url()).await;
    assert_eq!(troubles(&report), [(Level::Danger, Topic::Persistence)], "{report}");
    let server = RedisServer::start_with(&["--save", "3600 1"]).await;
    let report = examined(&server.url()).await;
    assert_eq!(troubles(&report), [(Level::Warning, Topic::Persistence)], "{report}");
}

async fn a_server_that_throws_locks_away_is_told() {
    let args = [WELL_KEPT, &["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]].concat();
    let server = RedisServer::start_with(&args).await;
    let report = examined(&server.url()).await;
    assert_eq!(troubles(&report), [(Level::Danger, Topic::Eviction)], "{report}");
    let _: () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.expect("set");
    assert_eq!(troubles(&examined(&server.url()).await), []);
}

async fn a_master_that_goes_on_without_its_replicas_is_told() {
    let set = ReplicaSet::start_with(1, WELL_KEPT).await;
    let report = examined(&set.url()).await;
    // It goes on without them; and grants are not acknowledged.
    let both = [(Level::Danger, Topic::Replication), (Level::Warning, Topic::Replication)];
    assert_eq!(troubles(&report), both, "{report}");
    for (setting, value) in [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "2")] {
        let _: () = set.master().ask(&["CONFIG", "SET", setting, value]).await.expect("set");
    }
    assert_eq!(troubles(&examined(&set.url()).await), both[1..]);
}

async fn a_server_that_hangs_up_early_is_told() {
    let server = RedisServer::start_with(&[WELL_KEPT, &["--timeout", "5"]].concat()).await;
    let report = examined(&server.url()).await;
    assert_eq!(troubles(&report), [(Level::Warning, Topic::Connections)], "{report}");
}

async fn a_slow_server_is_told() {
    let server = RedisServer::start_with(WELL_KEPT).await;
    let proxy = FaultProxy::start(server.port()).await;
    let client = Client::builder().watchdog(ms(3_000)).connect(&proxy.url()).await.expect("a server");
    assert_eq!(all_troubles(&examined_calmly(&client).await), []);
    // There and back: a fifth of a second, where the whole of a renewal has one.
    proxy.delay(ms(150));
    let report = client.doctor().await;
    found(&report, Level::Warning, Topic::Latency);
    assert_eq!(all_troubles(&report).len(), 1, "{report}");
}

async fn a_clock_that_is_far_off_is_told() {
    for (shift, way) in [(3_600, "ahead of"), (-3_600, "behind")] {
        let server = RedisServer::start_with_clock_ahead(shift).await;
        let report = examined(&server.url()).await;
        let finding = found(&report, Level::Warning, Topic::Clock);
        assert!(finding.text.contains("3600") && finding.text.contains(way), "{finding}");
    }
}

/// How to get in as a user with these rights.
async fn user(server: &RedisServer, rights: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "patient", "reset", "on", ">pass"], rights].concat();
    let _: () = server.ask(&words).await.expect("a user");
    format!("redis://patient:pass@{}", server.addr())
}

async fn a_right_that_lacks_is_told_with_the_rule() {
    let server = RedisServer::start_with(WELL_KEPT).await;
    // Locks can be taken and not be given back; not renewed; not taken at all.
    for (lacking, level) in
        [("-hdel", Level::Danger), ("-hexists", Level::Danger), ("-evalsha", Level::Danger)]
    {
        let report = examined(&user(&server, &["~*", "&*", "+@all", lacking]).await).await;
        let finding = found(&report, level, Topic::Rights);
        let words: Vec<_> = finding.text.split(' ').collect();
        assert!(words.contains(&"SETUSER"), "{finding}");
        assert!(words.iter().any(|word| word.trim_start_matches('+') == &lacking[1..]), "{finding}");
        assert_eq!(keys(&server).await, Vec::<String>::new(), "nothing is left without {lacking}");
    }
    // A right that only some need.
    let report = examined(&user(&server, &["~*", "&*", "+@all", "-zmscore"]).await).await;
    let finding = found(&report, Level::Danger, Topic::Rights);
    assert!(finding.text.contains("permit semaphore"), "{finding}");
    let report = examined(&user(&server, &["~*", "&*", "+@all", "-decr"]).await).await;
    assert!(found(&report, Level::Danger, Topic::Rights).text.contains("latch"));
}

async fn a_channel_that_lacks_is_told() {
    let server = RedisServer::start_with(WELL_KEPT).await;
    let report = examined(&user(&server, &["~*", "+@all", "&redisson_sc:*"]).await).await;
    assert_eq!(troubles(&report), [(Level::Warning, Topic::Messages)], "{report}");
    let text = &found(&report, Level::Warning, Topic::Messages).text;
    for told in ["lock", "fair lock", "read-write lock", "fenced lock", "latch"] {
        assert!(text.contains(told), "{told} in {text}");
    }
    assert!(!text.contains("semaphore"), "{text}");
}

async fn one_who_may_only_lock_some_names_is_told_what_else_it_may_not() {
    let server = RedisServer::start_with(WELL_KEPT).await;
    let rule = AclRule::new(&[Primitive::Lock], "orders:*").for_user("clerk").to_string();
    let _: () = server.ask(&rule.split(' ').collect::<Vec<_>>()).await.expect("a user");
    let url = format!("redis://clerk:PASSWORD@{}", server.addr());
    let client = Client::connect(&url).await.expect("a server");
    let report = client.doctor_for_names("orders:").await;
    assert_eq!(troubles(&report), [(Level::Warning, Topic::Rights)], "{report}");
    let text = &found(&report, Level::Warning, Topic::Rights).text;
    assert!(text.contains("fair lock, read-write lock, fenced lock, plain lock, semaphore"), "{text}");
    assert!(text.contains("~redisson_lock_queue:{orders:*}"), "{text}");
    found(&report, Level::Unknown, Topic::Server);
    found(&report, Level::Unknown, Topic::Clock);
    // Of other names nothing is allowed, and where to look is said.
    let report = client.doctor().await;
    assert!(found(&report, Level::Danger, Topic::Rights).text.contains("doctor_for_names"), "{report}");
    assert_eq!(keys(&server).await, Vec::<String>::new());
}

async fn the_least_rule_with_the_doctors_is_enough() {
    let server = RedisServer::start_with(WELL_KEPT).await;
    let rule = AclRule::new(&Primitive::ALL, "app:*").for_user("app").with_doctor().to_string();
    let _: () = server.ask(&rule.split(' ').collect::<Vec<_>>()).await.expect("a user");
    let url = format!("redis://app:PASSWORD@{}", server.addr());
    let client = Client::builder().key_prefix("app:").connect(&url).await.expect("a server");
    let report = examined_calmly(&client).await;
    assert_eq!((report.worst(), troubles(&report)), (Level::Fine, vec![]), "{report}");
    assert_eq!(keys(&server).await, Vec::<String>::new());
}

async fn every_master_of_a_cluster_is_looked_at() {
    let cluster = ClusterSet::start().await;
    let report = examined(&cluster.url()).await;
    let mut looked_at: Vec<_> = report.findings.iter().filter_map(|finding| finding.server.clone()).collect();
    looked_at.sort();
    looked_at.dedup();
    assert_eq!(looked_at.len(), 3, "{report}");
    found(&report, Level::Fine, Topic::Rights);
    found(&report, Level::Fine, Topic::Messages);
    for node in cluster.nodes() {
        assert_eq!(keys(node).await, Vec::<String>::new());
    }
}

async fn the_least_rule_of_a_cluster_is_enough_and_the_least() {
    let cluster = ClusterSet::start().await;
    let rule = AclRule::new(&Primitive::ALL, "app:*").for_user("app").on_cluster().with_doctor().to_string();
    // What comes of it when one part is left out.
    let outcome = async |part: &str| {
        let words: Vec<_> = rule.split(' ').filter(|word| *word != part).collect();
        for node in cluster.nodes() {
            let _: () = node.ask(&words).await.expect("a user");
        }
        let url = cluster.url().replace("redis+cluster://", "redis+cluster://app:PASSWORD@");
        let client =
            Client::builder().key_prefix("app:").connect(&url).await.map_err(|error| error.to_string())?;
        let report = client.doctor().await;
        let is_about_the_user = |finding: &&Finding| matches!(finding.topic, Topic::Rights | Topic::Messages);
        let troubles: Vec<_> = report.troubles().filter(is_about_the_user).map(ToString::to_string).collect();
        if troubles.is_empty() { Ok(()) } else { Err(troubles.join("\n")) }
    };
    assert_eq!(outcome("").await, Ok(()));
    for node in cluster.nodes() {
        let log: Vec<redis::Value> = node.ask(&["ACL", "LOG"]).await.expect("an answer");
        assert!(log.is_empty(), "refused with all of the rule: {log:?}");
    }
    let parts =
        ["+cluster|nodes", "+pubsub|shardnumsub", "+spublish", "+ssubscribe", "~turnlock_never:{app:*}"];
    for part in parts {
        assert!(outcome(part).await.is_err(), "{part} can be left out");
    }
}

async fn a_server_that_is_gone_is_told() {
    let mut server = RedisServer::start_with(WELL_KEPT).await;
    let client = Client::connect(&server.url()).await.expect("a server");
    server.stop().await;
    let report = client.doctor().await;
    found(&report, Level::Danger, Topic::Latency);
}

async fn memory_has_no_server() {
    let report = tokio::task::spawn_blocking(|| {
        blocking::Client::connect("memory://").expect("a store that is there").doctor()
    });
    let report = report.await.expect("no panic");
    assert_eq!((report.worst(), report.findings.len()), (Level::Fine, 1));
    assert!(report.to_string().contains("no server"), "{report}");
}
