use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use turnlock_redis::{ClusterMessages, Tls};
use turnlock_store::MemoryStore;

use super::*;
use crate::config::Builder;
use crate::{Client, Error, blocking};

fn parse(file: Value) -> Result<Settings, serde_json::Error> {
    serde_json::from_value(file)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Every setting that a file can have, with a value, and the same set by the builder.
fn examples() -> Vec<(&'static str, Value, Builder)> {
    let builder = Client::builder;
    let url = Builder::from(Settings { url: Some(Secret::new("memory://")), ..Settings::default() });
    let files = Tls::new().client_certificate_files("/cert", "/key");
    vec![
        ("url", json!("memory://"), url),
        ("watchdog_timeout", json!("1m 30s"), builder().watchdog_timeout(seconds(90))),
        ("response_timeout", json!("500ms"), builder().response_timeout(Duration::from_millis(500))),
        ("connect_timeout", json!("2m"), builder().connect_timeout(seconds(120))),
        ("retry_for", json!("1h"), builder().retry_for(seconds(3_600))),
        ("poll_interval", json!("5s"), builder().poll_interval(seconds(5))),
        ("hand_over_window", json!("0s"), builder().hand_over_window(Duration::ZERO)),
        ("key_prefix", json!("billing:"), builder().key_prefix("billing:")),
        ("label", json!("worker"), builder().label("worker")),
        ("replicas", json!(2), builder().replicas(2)),
        ("announce_waits", json!(false), builder().announce_waits(false)),
        ("announce_call_sites", json!(true), builder().announce_call_sites(true)),
        ("fail_on_deadlock", json!(true), builder().fail_on_deadlock(true)),
        ("user", json!("me"), builder().user("me")),
        ("password_file", json!("/a"), builder().password_from_file("/a")),
        ("password_env", json!("A"), builder().password_from_env("A")),
        ("db", json!(3), builder().database(3)),
        ("client_name", json!("me"), builder().client_name("me")),
        ("sentinel_user", json!("me"), builder().sentinel_user("me")),
        ("sentinel_password_file", json!("/a"), builder().sentinel_password_from_file("/a")),
        ("sentinel_password_env", json!("A"), builder().sentinel_password_from_env("A")),
        ("messages", json!("plain"), builder().cluster_messages(ClusterMessages::Plain)),
        ("ca_file", json!("/a"), builder().tls(Tls::new().ca_file("/a"))),
        ("cert_file", json!("/cert"), builder().tls(files.clone())),
        ("key_file", json!("/key"), builder().tls(files)),
        ("server_name", json!("a"), builder().tls(Tls::new().server_name("a"))),
        ("verify", json!(false), builder().tls(Tls::new().danger_accept_any_server())),
        ("any_file_system", json!(true), builder().any_file_system(true)),
    ]
}

#[test]
fn a_file_sets_what_the_builder_sets() {
    let names: Vec<_> = examples().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, Settings::names());
    for (name, value, builder) in examples() {
        let settings = parse(json!({ name: &value })).expect(name);
        // A builder also knows that `tls` was called.
        let mut expected = builder.settings;
        expected.redis.tls = None;
        let setting = if name == "db" { "database" } else { name };
        assert_eq!(settings.first_set(), Some(setting), "{name}: {settings:?}");
        assert_eq!(settings.merge(expected.clone()), Ok(expected), "{name}");
    }
    let all: serde_json::Map<_, _> =
        examples().into_iter().map(|(name, value, _)| (name.to_owned(), value)).collect();
    assert!(parse(Value::Object(all)).is_ok());
}

#[test]
fn an_error_of_a_file_names_the_setting_and_shows_no_value() {
    for (file, name) in [
        (json!({ "nonsense": "quokka" }), "`nonsense`"),
        (json!({ "redis": { "user": "quokka" } }), "`redis`"),
        (json!({ "password": "quokka" }), "password_file"),
        (json!({ "sentinel_password": "quokka" }), "`sentinel_password`"),
        (json!({ "replicas": "quokka" }), "`replicas`"),
        (json!({ "replicas": -1 }), "`replicas`"),
        (json!({ "db": 1.5 }), "`db`"),
        (json!({ "retry_for": 30 }), "`retry_for`"),
        (json!({ "retry_for": "30 quokka" }), "`retry_for`"),
        (json!({ "verify": "quokka" }), "`verify`"),
        (json!({ "messages": "quokka" }), "`messages`"),
        (json!({ "label": ["quokka"] }), "`label`"),
        (json!({ "label": true }), "`label`"),
        (json!({ "nonsense": null }), "`nonsense`"),
    ] {
        let error = parse(file.clone()).expect_err(name).to_string();
        assert!(error.contains(name) && !error.contains("quokka"), "{file}: {error}");
    }
    assert_eq!(parse(json!({ "label": null })).expect("unset"), Settings::default());
    let twice = serde_json::from_str::<Settings>(r#"{ "label": "one", "label": "two" }"#);
    assert!(twice.expect_err("set twice").to_string().contains("`label`"));
}

#[test]
fn debug_shows_no_password_of_the_url() {
    let settings = parse(json!({ "url": "redis://me:quokka@h" })).expect("settings");
    assert!(!format!("{settings:?} {:?}", Builder::from(settings.clone())).contains("quokka"));
}

#[tokio::test]
async fn a_client_connects_by_its_settings() {
    let file = json!({ "url": "memory://settings", "key_prefix": "a:", "connect_timeout": "5s" });
    let settings = parse(file).expect("settings");
    let client = Client::from_settings(settings.clone()).await.expect("a store");
    let guard = client.lock("one").await.expect("free");
    let plain = Client::connect("memory://settings").await.expect("a store");
    assert!(plain.lock("a:one").try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");

    let changed = Builder::from(settings.clone()).key_prefix("b:").open().await.expect("a store");
    let guard = changed.lock("one").await.expect("free");
    assert!(plain.lock("b:one").try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");

    let blocking = tokio::task::spawn_blocking(move || {
        let client = blocking::Client::from_settings(settings).expect("a store");
        client.lock("one").lock().expect("free").unlock().expect("held");
    });
    blocking.await.expect("no panic");
}

#[tokio::test]
async fn the_settings_and_the_url_must_agree() {
    let settings =
        |url: &str| Builder::from(parse(json!({ "url": url, "connect_timeout": "5s" })).expect("settings"));
    let memory = "memory://agree";
    for (outcome, expected) in [
        (Client::from_settings(Settings::default()).await, "url"),
        (settings(memory).connect("memory://other").await, "url"),
        (settings(memory).memory(&MemoryStore::new()), "url"),
        (settings(memory).cluster(&["h"]).await, "url"),
        (settings("memory://agree?connect_timeout=4s").open().await, "connect_timeout"),
    ] {
        let error = outcome.expect_err(expected);
        assert!(matches!(&error, Error::BadConfiguration { setting, .. } if *setting == expected), "{error}");
    }
    settings(memory).connect(memory).await.expect("the same URL");
    settings("memory://agree?connect_timeout=5s").open().await.expect("the same time-out");
}

#[test]
fn the_documentation_lists_all_settings() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let text = std::fs::read_to_string(page).expect("docs/settings.md");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let mut listed: Vec<_> = text.lines().filter_map(row).collect();
    let mut names = Settings::names();
    listed.sort_unstable();
    names.sort_unstable();
    assert_eq!(listed, names);
}

/// Values of settings: with a canary, at their limits, or of another type.
fn any_value() -> impl Strategy<Value = Value> {
    const TEXTS: &[&str] = &[
        "quokka",
        "redis://:quokka@h",
        "",
        "yes",
        "1",
        "-1",
        "4294967296",
        "1s",
        "1s quokka",
        "18446744073709551615s",
        "18446744073709551615s 1s",
        "9999999999999999999y",
        "\u{0}",
        "sharded",
    ];
    prop_oneof![
        6 => select(TEXTS).prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => select(vec![Value::Null, json!(true), json!(["quokka"]), json!({ "a": { "b": "quokka" } })]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file_is_settings_or_an_error_that_shows_no_value(
        entries in vec((prop_oneof![9 => select(Settings::names()), 1 => Just("nonsense")], any_value()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let file: serde_json::Map<_, _> = entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let text = Value::Object(file.clone()).to_string();
        let part: String = text.chars().take(cut.index(text.chars().count())).collect();
        prop_assert!(serde_json::from_str::<Settings>(&part).is_err(), "a part of it is no file");
        match parse(Value::Object(file)) {
            Err(error) => prop_assert!(!error.to_string().contains("quokka"), "{}", error),
            Ok(mut settings) => {
                settings.url = None;
                settings.redis = RedisSettings::default();
                settings.file = FileSettings::default();
                if let Err(error) = settings.check("a test", true) {
                    prop_assert!(matches!(error, Error::BadConfiguration { .. }), "{}", error);
                }
            }
        }
    }
}

#[tokio::test]
async fn the_longest_durations_do_not_overflow() {
    let longest = format!("{}s", u64::MAX);
    let file = json!({
        "url": "memory://longest", "connect_timeout": longest, "retry_for": longest, "poll_interval": longest,
    });
    let client = Client::from_settings(parse(file).expect("settings")).await.expect("a client");
    let held =
        client.lock("orders").try_lock_for(Duration::MAX).await.expect("a reply").acquired().expect("free");
    let waiting = tokio::spawn({
        let lock = client.lock("orders");
        async move { lock.try_lock_for(Duration::MAX).await }
    });
    tokio::task::yield_now().await;
    held.unlock().await.expect("released");
    assert!(waiting.await.expect("no panic").expect("a reply").acquired().is_some());
}
