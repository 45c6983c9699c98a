//! The pictures of the dashboard in the documentation: `docs/pictures/make-dashboard` writes them.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::Case;
use crate::browser::Browser;
use crate::fixture::Fixture;

/// The case that writes the pictures to the directory `TURNLOCK_DASHBOARD_PICTURES`. `None` without it.
pub(crate) fn case() -> Option<Case> {
    directory()?;
    Some(("pictures", |fixture| Box::pin(record(fixture))))
}

fn directory() -> Option<PathBuf> {
    std::env::var_os("TURNLOCK_DASHBOARD_PICTURES").map(PathBuf::from)
}

/// The largest size of a picture.
const MAX_BYTES: usize = 150_000;

/// How often the fair lock changes hands, so that its page has something to plot.
const HAND_OVERS: usize = 14;

/// The clients: host, process id, label.
const CLIENTS: &[(&str, u32, &str)] = &[
    ("ci-3", 2077, "pipeline 118"),
    ("ci-7", 1950, "pipeline 119"),
    ("ci-5", 3301, "pipeline 120"),
    ("db-1", 4242, "backup.sh"),
    ("web-1", 812, "price import"),
    ("web-2", 795, "price import"),
    ("batch-4", 18, "invoices"),
    ("worker-11", 6120, "thumbnails"),
    ("worker-12", 6122, "thumbnails"),
];

/// The locks: name, client, seconds since it is held, remaining lease.
const LOCKS: &[(&str, usize, u64, u64)] = &[
    ("nightly-backup", 3, 5_420, 27_000),
    ("prices:eu", 4, 48, 24_500),
    ("prices:us", 5, 51, 18_200),
    ("invoices:2026-11", 6, 730, 29_000),
    ("thumbnails:shard-1", 7, 12, 22_000),
    ("thumbnails:shard-2", 8, 9, 6_300),
    ("thumbnails:shard-3", 7, 3, 28_000),
    ("search:reindex", 3, 1_980, 25_000),
    ("mail:digest", 6, 65, 21_400),
    ("cache:warm-up", 4, 31, 12_900),
    ("stock:sync", 5, 240, 26_100),
    ("reports:weekly", 6, 3_610, 28_300),
    ("leader:scheduler", 8, 86_400, 29_400),
    ("migrations", 0, 17, 23_800),
];

const FAIR: &str = "deploy:production";

fn owner(client: usize, number: usize) -> String {
    format!("{client}7b1c0de-1707-4707-8707-07070707070{client}:{number}")
}

async fn record(mut fixture: Fixture) {
    fill(&mut fixture).await;
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(&format!("{}#/lock/{FAIR}", dashboard.url())).await;
    browser.set_size(1_200, 900, false).await;
    for round in 0..HAND_OVERS {
        pass_on(&mut fixture, round).await;
        let pause = [900, 400, 1_600, 700][round % 4];
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    fill(&mut fixture).await;
    browser.until("document.querySelectorAll('.plot .dot').length > 10").await;
    save(&browser, "dashboard-lock.png").await;
    browser.set_size(1_200, 700, false).await;
    browser.go("#/").await;
    browser.until_locks(LOCKS.len() + 1).await;
    save(&browser, "dashboard-light.png").await;
    browser.set_scheme("dark").await;
    save(&browser, "dashboard-dark.png").await;
    browser.set_size(360, 720, true).await;
    browser.set_scheme("light").await;
    save(&browser, "dashboard-phone.png").await;
}

/// Writes clients and locks as turnlock leaves them on the store.
async fn fill(fixture: &mut Fixture) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let now = u64::try_from(now).unwrap();
    for (index, (host, pid, label)) in CLIENTS.iter().enumerate() {
        let locks = LOCKS.iter().enumerate().filter(|(_, lock)| lock.1 == index);
        let since: serde_json::Map<_, _> =
            locks.map(|(number, lock)| (number.to_string(), json!(now - lock.2 * 1_000))).collect();
        let record = json!({ "host": host, "pid": pid, "label": label, "started_ms": now - 90_000_000, "since": since });
        let key = format!("turnlock_client:{}", owner(index, 0).split_once(':').unwrap().0);
        let _: String = fixture.server().query(&["SET", &key, &record.to_string()]).await.unwrap();
    }
    for (number, (name, client, _, ttl)) in LOCKS.iter().enumerate() {
        let _: i64 = fixture.server().query(&["HSET", name, &owner(*client, number), "1"]).await.unwrap();
        let _: i64 = fixture.server().query(&["PEXPIRE", name, &ttl.to_string()]).await.unwrap();
    }
}

/// Passes the fair lock to the next client, with the two others in its queue.
async fn pass_on(fixture: &mut Fixture, round: usize) {
    let script = "redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
        redis.call('HSET', KEYS[1], ARGV[1], 1)
        redis.call('PEXPIRE', KEYS[1], 30000)
        local time = redis.call('TIME')
        for i = 2, #ARGV do
            redis.call('RPUSH', KEYS[2], ARGV[i])
            redis.call('ZADD', KEYS[3], time[1] * 1000 + 30000 * i, ARGV[i])
        end
        return 'OK'";
    let [queue, timeouts] = ["queue", "timeout"].map(|part| format!("redisson_lock_{part}:{{{FAIR}}}"));
    let owners = [0, 1, 2].map(|offset| owner((round + offset) % 3, 100 + round + offset));
    let [one, two, three] = &owners;
    let words = ["EVAL", script, "3", FAIR, &queue, &timeouts, one, two, three];
    let _: String = fixture.server().query(&words).await.unwrap();
}

async fn save(browser: &Browser, name: &str) {
    browser.eval("(document.activeElement.blur(), true)").await;
    // The bars of leases move for a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let picture = browser.screenshot().await;
    assert!(picture.len() <= MAX_BYTES, "{name} has {} bytes", picture.len());
    std::fs::write(directory().unwrap().join(name), picture).unwrap();
}
