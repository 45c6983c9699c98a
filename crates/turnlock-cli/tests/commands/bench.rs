//! `bench`.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use anstream::adapter::strip_str;
use serde_json::Value;
use turnlock_testkit::{FaultProxy, RedisServer, TempDir, eventually};
use unicode_width::UnicodeWidthStr;

use crate::fixture::Fixture;
use crate::program::{Program, code_of, signal};
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    it_measures_and_releases_its_locks,
    it_compares_two_stores,
    it_releases_its_locks_when_interrupted,
    more_than_an_hour_is_rejected,
    its_text_fits_eighty_columns,
    its_text_is_ascii_without_a_utf_8_locale,
];

pub(crate) const CASES_ON_REDIS: &[Case] =
    cases![each_store_has_its_own_password, a_disturbed_measurement_is_noisy];

async fn it_measures_and_releases_its_locks(fixture: Fixture) {
    let measurements = fixture.objects(&["bench", "--json", "--time", "1", "--tasks", "4"]).await;
    let [measurement] = &measurements[..] else { panic!("{measurements:?}") };
    assert!(measurement["serial"]["pairs"].as_u64().unwrap() > 0, "{measurement}");
    assert!(measurement["concurrent"]["pairs_per_second"].as_f64().unwrap() > 0.0, "{measurement}");
    assert_eq!(measurement["concurrent"]["tasks"], 4, "{measurement}");
    assert!(measurement["hand_over"]["times"].as_u64().unwrap() > 0, "{measurement}");
    let times = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"]
        .map(|time| measurement["latency"][time].as_f64().unwrap());
    assert!(times.is_sorted() && times[0] > 0.0, "{measurement}");
    let counted: u64 =
        measurement["histogram"].as_array().unwrap().iter().map(|bar| bar["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), measurement["serial"]["pairs"].as_u64(), "{measurement}");
    let ratio = &measurement["serial"]["ratio_to_ping"];
    assert!(measurement["ping"]["times"].as_u64().unwrap() > 0, "{measurement}");
    assert!(ratio.as_f64().unwrap() > 1.0, "a pair is more than a round trip: {measurement}");
    assert_eq!(measurement["store"], fixture.url(), "{measurement}");
    let version = measurement["servers"][0]["version"].as_str().unwrap();
    let product = if fixture.url().starts_with("file:") { "SQLite " } else { "Redis " };
    assert!(version.starts_with(product), "{measurement}");
    no_locks_are_left(&fixture).await;
}

async fn it_compares_two_stores(fixture: Fixture) {
    let other = OtherStore::new();
    let arguments = ["bench", "--time", "0.5", "--tasks", "2", "--compare", &other.url];
    let measured = fixture.objects(&[&arguments[..], &["--json"]].concat()).await;
    let [first, second] = &measured[..] else { panic!("{measured:?}") };
    assert_eq!((&first["store"], &second["store"]), (&fixture.url().into(), &other.url.as_str().into()));
    assert_eq!(first["ratio_to_first"], Value::Null);
    let rate = |measurement: &Value| measurement["concurrent"]["pairs_per_second"].as_f64().unwrap();
    let ratio = second["ratio_to_first"]["concurrent"].as_f64().unwrap();
    assert!((ratio - rate(second) / rate(first)).abs() < 1e-6, "{measured:?}");
    let text = fixture.run(&arguments).await;
    assert!(text.code == Some(0) && text.out.contains("B/A"), "{text:?}");
    assert!(text.out.contains(fixture.url()) && text.out.contains(&other.url), "{text:?}");
    no_locks_are_left(&fixture).await;
    other.has_no_locks().await;
}

async fn it_releases_its_locks_when_interrupted(fixture: Fixture) {
    // The second store is the same: a file would be free again when its process is gone.
    let arguments = ["bench", "--time", "3s", "--tasks", "2", "--names", "mine:", "--compare", fixture.url()];
    let child = fixture.program(&arguments).printing_to(Stdio::null(), Stdio::inherit()).start();
    let (client, names) = (&fixture.client("observer").await, &Mutex::new(BTreeSet::new()));
    // In this part, one of the two clients of a store holds the lock at any time.
    eventually(
        "the hand-over part of the second store has started",
        Duration::from_secs(30),
        || async move {
            let found = client.find("mine:*:hand-over", 10).await.unwrap().items;
            let mut names = names.lock().unwrap();
            names.extend(found.into_iter().map(|lock| lock.name));
            names.len() == 2
        },
    )
    .await;
    signal(&child, "-INT").await;
    assert_eq!(code_of(child).await, Some(130));
    no_locks_are_left(&fixture).await;
}

async fn more_than_an_hour_is_rejected(fixture: Fixture) {
    let ended = fixture.run(&["bench", "--time", "0"]).await;
    assert!(ended.code == Some(64) && ended.err.contains("more than 0"), "{ended:?}");
    for time in ["1e19", "3601", "2h"] {
        let ended = fixture.run(&["bench", "--time", time]).await;
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains("an hour"), "{ended:?}");
    }
}

async fn no_locks_are_left(fixture: &Fixture) {
    let listed = fixture.run(&["ls"]).await;
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), ""), "{listed:?}");
}

async fn its_text_fits_eighty_columns(fixture: Fixture) {
    let other = OtherStore::new();
    let one = ["bench", "--time", "0.2", "--tasks", "2"];
    for (arguments, heading) in
        [(&one[..], "x ping"), (&[&one[..], &["--compare", &other.url]].concat()[..], "B/A")]
    {
        let program = fixture.program(arguments).with_env("NO_COLOR", "1").with_env("LC_ALL", "C.UTF-8");
        let (code, text) = Terminal::start(program, 80).end().await;
        assert!(code == Some(0) && text.contains(heading), "{text}");
        for line in text.lines() {
            // The progress bar is overwritten.
            let line = strip_str(line.trim_end_matches('\r').rsplit('\r').next().unwrap()).to_string();
            assert!(line.width() <= 80, "{line:?} of {text}");
        }
    }
}

async fn its_text_is_ascii_without_a_utf_8_locale(fixture: Fixture) {
    let arguments = ["bench", "--time", "0.2", "--tasks", "2"];
    let text = fixture.program(&arguments).with_env("LC_ALL", "C").run().await;
    assert!(text.out.is_ascii() && text.out.contains("##"), "{text:?}");
    let text = fixture.program(&arguments).with_env("LC_ALL", "C.UTF-8").run().await;
    assert!(text.out.contains("██") && text.out.contains("µs"), "{text:?}");
}

async fn each_store_has_its_own_password(mut fixture: Fixture) {
    let open = RedisServer::start().await;
    let _: String = fixture.server().query(&["CONFIG", "SET", "requirepass", "first-word"]).await.unwrap();
    let bench = |url: &str| {
        let arguments = ["bench", "--time", "0.1", "--tasks", "2", "--compare", url];
        fixture.program(&arguments).with_env("TURNLOCK_PASSWORD", "first-word")
    };
    // A server without a password refuses one.
    let ended = bench(&open.url()).run().await;
    assert!(ended.code == Some(0) && !ended.out.contains("word"), "{ended:?}");
    let _: String = open.query(&["CONFIG", "SET", "requirepass", "other-word"]).await.unwrap();
    assert_eq!(bench(&open.url()).run().await.code, Some(77));
    let url = format!("{}?password_env=OTHER", open.url());
    let ended = bench(&url).with_env("OTHER", "other-word").run().await;
    assert!(ended.code == Some(0) && !ended.out.contains("word"), "{ended:?}");
    let url = open.url().replace("redis://", "redis://:other-word@");
    let ended = bench(&url).run().await;
    assert!(ended.code == Some(0) && !ended.out.contains("word"), "{ended:?}");
}

async fn a_disturbed_measurement_is_noisy(mut fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let arguments = ["bench", "--time", "2s", "--tasks", "2", "--names", "mine:"];
    let program = Program::new(&arguments).with_env("TURNLOCK_STORE", &proxy.url());
    let bench = tokio::spawn(program.run());
    let client = fixture.client("observer").await;
    eventually("the first round has ended", Duration::from_secs(20), || async {
        !client.find("mine:*:hand-over", 10).await.unwrap().items.is_empty()
    })
    .await;
    proxy.delay(Duration::from_millis(40));
    let ended = bench.await.unwrap();
    let noise = ended.out.lines().find(|line| line.starts_with("noisy: "));
    assert!(ended.code == Some(0) && noise.is_some_and(|noise| noise.contains("ping")), "{ended:?}");
    assert!(ended.out.contains("--time 10s"), "{ended:?}");
}

/// A store in a file, to compare with.
struct OtherStore {
    url: String,
    _dir: TempDir,
}

impl OtherStore {
    fn new() -> Self {
        let dir = TempDir::new();
        Self { url: format!("file:{}", dir.path().join("other").display()), _dir: dir }
    }

    async fn has_no_locks(&self) {
        let listed = Program::new(&["ls"]).with_env("TURNLOCK_STORE", &self.url).run().await;
        assert_eq!((listed.code, listed.out.as_str()), (Some(0), ""), "{listed:?}");
    }
}
