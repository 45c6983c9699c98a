//! The doctor reports problems that a case creates, and no others.

use libtest_mimic::Trial;
use redis::AsyncCommands;
use turnlock::acl::{AclRule, Primitive};
use turnlock::doctor::{Finding, Level, Report, Topic};
use turnlock::{Client, blocking};
use turnlock_testkit::{ClusterSet, FaultProxy, RedisServer, ReplicaSet};

use crate::fixture::ms;
use crate::{CaseFuture, trial_of};

type DoctorCase = (&'static str, fn() -> CaseFuture);

/// Makes a list of cases from `async fn()` functions.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), || Box::pin($case()))),*] };
}

const CASES: &[DoctorCase] = cases![
    a_well_configured_server_has_no_problems,
    missing_persistence_is_reported,
    an_eviction_policy_is_reported,
    a_master_that_accepts_writes_without_replicas_is_reported,
    a_short_idle_timeout_is_reported,
    high_latency_is_reported,
    a_missing_right_is_reported_with_the_rule,
    a_missing_channel_is_reported,
    a_user_limited_to_some_names_gets_the_missing_rights,
    the_least_rule_with_doctor_rights_is_sufficient,
    every_master_of_a_cluster_is_checked,
    the_rule_of_a_cluster_is_sufficient_and_minimal,
    an_unreachable_server_is_reported,
    memory_has_no_server,
];

/// The cases that need a server whose clock can be set.
const CLOCK_CASES: &[DoctorCase] = cases![a_large_clock_offset_is_reported];

pub(crate) fn trials(missing: Option<&str>) -> impl Iterator<Item = Trial> {
    let missing = missing.map(str::to_owned);
    let missing_clock = missing.clone().or_else(RedisServer::clock_shift_missing);
    let cases = CASES.iter().map(move |case| (case, missing.clone()));
    let clock_cases = CLOCK_CASES.iter().map(move |case| (case, missing_clock.clone()));
    cases
        .chain(clock_cases)
        .map(|((name, case), missing)| trial_of(&format!("doctor::{name}"), missing, case))
}

/// The settings of a well configured server.
const WELL_CONFIGURED: &[&str] = &["--appendonly", "yes"];

async fn examine(url: &str) -> Report {
    let client = Client::connect(url).await.expect("a server");
    // As a task, to check that the future is `Send`.
    tokio::spawn(async move { examine_without_delay(&client).await }).await.expect("no panic")
}

/// Repeats the report, up to five times in total, while a reply was late because of a busy machine.
async fn examine_without_delay(client: &Client) -> Report {
    for _ in 0..4 {
        let report = client.doctor().await;
        if !all_problems(&report).contains(&LATE) {
            return report;
        }
    }
    client.doctor().await
}

fn found(report: &Report, level: Level, topic: Topic) -> &Finding {
    let finding = report.findings.iter().find(|finding| (finding.level, finding.topic) == (level, topic));
    finding.unwrap_or_else(|| panic!("no {level} about {topic} in:\n{report}"))
}

/// The finding of a late reply, which a busy machine may cause.
const LATE: (Level, Topic) = (Level::Warning, Topic::Latency);

/// Returns the problems of the server, without those of a busy machine.
fn problems(report: &Report) -> Vec<(Level, Topic)> {
    let mut problems = all_problems(report);
    problems.retain(|problem| *problem != LATE);
    problems
}

fn all_problems(report: &Report) -> Vec<(Level, Topic)> {
    report.problems().map(|finding| (finding.level, finding.topic)).collect()
}

async fn keys(server: &RedisServer) -> Vec<String> {
    server.client().await.keys("*").await.expect("keys")
}

async fn settings(server: &RedisServer) -> Vec<(String, String)> {
    let mut settings: Vec<_> = server.query(&["CONFIG", "GET", "*"]).await.expect("settings");
    settings.sort();
    settings
}

async fn a_well_configured_server_has_no_problems() {
    let server = RedisServer::start_with(WELL_CONFIGURED).await;
    let before = settings(&server).await;
    let report = examine(&server.url()).await;
    assert_eq!((report.worst(), problems(&report)), (Level::Fine, vec![]), "{report}");
    for topic in [Topic::Server, Topic::Persistence, Topic::Eviction, Topic::Clock, Topic::Latency] {
        let finding = found(&report, Level::Fine, topic);
        assert_eq!(finding.server, Some(server.addr().to_string()));
    }
    found(&report, Level::Fine, Topic::Rights);
    found(&report, Level::Fine, Topic::Messages);
    assert_eq!(keys(&server).await, Vec::<String>::new(), "no key is left");
    assert_eq!(settings(&server).await, before, "no setting is changed");
}

async fn missing_persistence_is_reported() {
    let server = RedisServer::start().await;
    let report = examine(&server.url()).await;
    assert_eq!(problems(&report), [(Level::Danger, Topic::Persistence)], "{report}");
    let server = RedisServer::start_with(&["--save", "3600 1"]).await;
    let report = examine(&server.url()).await;
    assert_eq!(problems(&report), [(Level::Warning, Topic::Persistence)], "{report}");
}

async fn an_eviction_policy_is_reported() {
    let args = [WELL_CONFIGURED, &["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]].concat();
    let server = RedisServer::start_with(&args).await;
    let report = examine(&server.url()).await;
    assert_eq!(problems(&report), [(Level::Danger, Topic::Eviction)], "{report}");
    let _: () = server.query(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.expect("set");
    assert_eq!(problems(&examine(&server.url()).await), []);
}

async fn a_master_that_accepts_writes_without_replicas_is_reported() {
    let set = ReplicaSet::start_with(1, WELL_CONFIGURED).await;
    let report = examine(&set.url()).await;
    // It accepts writes without them, and grants are not acknowledged.
    let both = [(Level::Danger, Topic::Replication), (Level::Warning, Topic::Replication)];
    assert_eq!(problems(&report), both, "{report}");
    for (setting, value) in [("min-replicas-to-write", "1"), ("min-replicas-max-lag", "2")] {
        let _: () = set.master().query(&["CONFIG", "SET", setting, value]).await.expect("set");
    }
    assert_eq!(problems(&examine(&set.url()).await), both[1..]);
}

async fn a_short_idle_timeout_is_reported() {
    let server = RedisServer::start_with(&[WELL_CONFIGURED, &["--timeout", "5"]].concat()).await;
    let report = examine(&server.url()).await;
    assert_eq!(problems(&report), [(Level::Warning, Topic::Connections)], "{report}");
}

async fn high_latency_is_reported() {
    let server = RedisServer::start_with(WELL_CONFIGURED).await;
    let proxy = FaultProxy::start(server.port()).await;
    let client = Client::builder().watchdog_timeout(ms(3_000)).connect(&proxy.url()).await.expect("a server");
    assert_eq!(all_problems(&examine_without_delay(&client).await), []);
    // In both directions: a round trip takes more than a fifth of the second that a renewal may take.
    proxy.delay(ms(150));
    let report = client.doctor().await;
    found(&report, Level::Warning, Topic::Latency);
    assert_eq!(all_problems(&report).len(), 1, "{report}");
}

async fn a_large_clock_offset_is_reported() {
    for (shift, direction) in [(3_600, "ahead of"), (-3_600, "behind")] {
        let server = RedisServer::start_with_clock_ahead(shift).await;
        let report = examine(&server.url()).await;
        let finding = found(&report, Level::Warning, Topic::Clock);
        assert!(finding.text.contains("3600") && finding.text.contains(direction), "{finding}");
    }
}

/// Creates a user with these rights, and returns its URL.
async fn user(server: &RedisServer, rights: &[&str]) -> String {
    let words = [&["ACL", "SETUSER", "limited", "reset", "on", ">pass"], rights].concat();
    let _: () = server.query(&words).await.expect("a user");
    format!("redis://limited:pass@{}", server.addr())
}

async fn a_missing_right_is_reported_with_the_rule() {
    let server = RedisServer::start_with(WELL_CONFIGURED).await;
    // Without these rights, locks cannot be released, renewed or acquired.
    for (lacking, level) in
        [("-hdel", Level::Danger), ("-hexists", Level::Danger), ("-evalsha", Level::Danger)]
    {
        let report = examine(&user(&server, &["~*", "&*", "+@all", lacking]).await).await;
        let finding = found(&report, level, Topic::Rights);
        let words: Vec<_> = finding.text.split(' ').collect();
        assert!(words.contains(&"SETUSER"), "{finding}");
        assert!(words.iter().any(|word| word.trim_start_matches('+') == &lacking[1..]), "{finding}");
        assert_eq!(keys(&server).await, Vec::<String>::new(), "no key is left without {lacking}");
    }
    // Rights that only some primitives need.
    let report = examine(&user(&server, &["~*", "&*", "+@all", "-zrangebyscore"]).await).await;
    let finding = found(&report, Level::Danger, Topic::Rights);
    assert!(finding.text.contains("permit semaphore"), "{finding}");
    let report = examine(&user(&server, &["~*", "&*", "+@all", "-decr"]).await).await;
    assert!(found(&report, Level::Danger, Topic::Rights).text.contains("latch"));
}

async fn a_missing_channel_is_reported() {
    let server = RedisServer::start_with(WELL_CONFIGURED).await;
    let report = examine(&user(&server, &["~*", "+@all", "&redisson_sc:*"]).await).await;
    assert_eq!(problems(&report), [(Level::Warning, Topic::Messages)], "{report}");
    let text = &found(&report, Level::Warning, Topic::Messages).text;
    for noun in ["lock", "fair lock", "read-write lock", "fenced lock", "latch"] {
        assert!(text.contains(noun), "{noun} in {text}");
    }
    assert!(!text.contains("semaphore"), "{text}");
}

async fn a_user_limited_to_some_names_gets_the_missing_rights() {
    let server = RedisServer::start_with(WELL_CONFIGURED).await;
    let rule = AclRule::new(&[Primitive::Lock], "orders:*").for_user("orders").to_string();
    let _: () = server.query(&rule.split(' ').collect::<Vec<_>>()).await.expect("a user");
    let url = format!("redis://orders:PASSWORD@{}", server.addr());
    let client = Client::connect(&url).await.expect("a server");
    let report = client.doctor_with_prefix("orders:").await;
    assert_eq!(problems(&report), [(Level::Warning, Topic::Rights)], "{report}");
    let text = &found(&report, Level::Warning, Topic::Rights).text;
    assert!(text.contains("fair lock, read-write lock, fenced lock, plain lock, semaphore"), "{text}");
    assert!(text.contains("~redisson_lock_queue:{orders:*}"), "{text}");
    found(&report, Level::Unknown, Topic::Server);
    // No right to other names: the report refers to doctor_with_prefix.
    let report = client.doctor().await;
    assert!(found(&report, Level::Danger, Topic::Rights).text.contains("doctor_with_prefix"), "{report}");
    assert_eq!(keys(&server).await, Vec::<String>::new());
}

async fn the_least_rule_with_doctor_rights_is_sufficient() {
    let server = RedisServer::start_with(WELL_CONFIGURED).await;
    let rule = AclRule::new(&Primitive::ALL, "app:*").for_user("app").with_doctor().to_string();
    let _: () = server.query(&rule.split(' ').collect::<Vec<_>>()).await.expect("a user");
    let url = format!("redis://app:PASSWORD@{}", server.addr());
    let client = Client::builder().key_prefix("app:").connect(&url).await.expect("a server");
    let report = examine_without_delay(&client).await;
    assert_eq!((report.worst(), problems(&report)), (Level::Fine, vec![]), "{report}");
    assert_eq!(keys(&server).await, Vec::<String>::new());
}

async fn every_master_of_a_cluster_is_checked() {
    let cluster = ClusterSet::start().await;
    let report = examine(&cluster.url()).await;
    let mut checked: Vec<_> = report.findings.iter().filter_map(|finding| finding.server.clone()).collect();
    checked.sort();
    checked.dedup();
    assert_eq!(checked.len(), 3, "{report}");
    found(&report, Level::Fine, Topic::Rights);
    found(&report, Level::Fine, Topic::Messages);
    for node in cluster.nodes() {
        assert_eq!(keys(node).await, Vec::<String>::new());
    }
}

async fn the_rule_of_a_cluster_is_sufficient_and_minimal() {
    let cluster = ClusterSet::start().await;
    let rule = AclRule::new(&Primitive::ALL, "app:*").for_user("app").on_cluster().with_doctor().to_string();
    // Runs the doctor with the rule without one part.
    let outcome = async |part: &str| {
        let words: Vec<_> = rule.split(' ').filter(|word| *word != part).collect();
        for node in cluster.nodes() {
            let _: () = node.query(&words).await.expect("a user");
        }
        let url = cluster.url().replace("redis+cluster://", "redis+cluster://app:PASSWORD@");
        let client = Client::builder()
            .key_prefix("app:")
            .connect(&url)
            .await
            .map_err(|error| turnlock_testkit::error_chain(&error))?;
        let report = client.doctor().await;
        let is_about_the_user = |finding: &&Finding| matches!(finding.topic, Topic::Rights | Topic::Messages);
        let problems: Vec<_> = report.problems().filter(is_about_the_user).map(ToString::to_string).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    };
    assert_eq!(outcome("").await, Ok(()));
    for node in cluster.nodes() {
        let log: Vec<redis::Value> = node.query(&["ACL", "LOG"]).await.expect("a reply");
        assert!(log.is_empty(), "refused with the complete rule: {log:?}");
    }
    let parts =
        ["+cluster|nodes", "+pubsub|shardnumsub", "+spublish", "+ssubscribe", "~turnlock_never:{app:*}"];
    for part in parts {
        assert!(outcome(part).await.is_err(), "{part} is not needed");
    }
}

async fn an_unreachable_server_is_reported() {
    let mut server = RedisServer::start_with(WELL_CONFIGURED).await;
    let client = Client::connect(&server.url()).await.expect("a server");
    server.stop().await;
    let report = client.doctor().await;
    found(&report, Level::Danger, Topic::Latency);
}

async fn memory_has_no_server() {
    let report = tokio::task::spawn_blocking(|| {
        blocking::Client::connect("memory://").expect("a memory store").doctor()
    });
    let report = report.await.expect("no panic");
    assert_eq!((report.worst(), report.findings.len()), (Level::Fine, 1));
    assert!(report.to_string().contains("without a server"), "{report}");
}
