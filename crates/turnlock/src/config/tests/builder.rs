use super::*;

const UNIX: &str = "redis+unix:///nowhere/at/all";

fn builder() -> Builder {
    Client::builder()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Asserts that connecting fails with an error of this setting.
#[track_caller]
fn assert_bad_setting(outcome: Result<Client, Error>, expected: &str, case: &str) {
    let error = outcome.expect_err(case);
    assert!(
        matches!(&error, Error::BadConfiguration { setting, .. } if *setting == expected),
        "{case}: {error}, and not {expected}"
    );
}

#[tokio::test]
async fn builder_and_url_must_not_contradict_each_other() {
    for (builder, url, setting) in [
        (builder().user("me"), "redis://you:pass@h", "user"),
        (builder().password("word"), "redis://me:pass@h", "password"),
        (builder().password_from_file("/a"), "redis://h?password_file=/b", "password_file"),
        (builder().password_from_env("A"), "redis://h?password_env=B", "password_env"),
        (builder().password_from_env("PATH"), "redis://:pass@h", "password"),
        (builder().database(1), "redis://h/2", "database"),
        (builder().client_name("a"), "redis://h?client_name=b", "client_name"),
        (builder().connect_timeout(ms(1)), "redis://h?connect_timeout=1s", "connect_timeout"),
        (builder().response_timeout(ms(1)), "redis://h?response_timeout=1s", "response_timeout"),
        (builder().replicas(1), "redis://h?replicas=2", "replicas"),
        (builder().tls(Tls::new().ca_file("/a")), "rediss://h?ca_file=/b", "ca_file"),
        (builder().tls(Tls::new().ca_pem("a")), "rediss://h?ca_file=/b", "ca_file"),
        (builder().tls(Tls::new().server_name("a")), "rediss://h?server_name=b", "server_name"),
        (builder().tls(Tls::new().danger_accept_any_server()), "rediss://h?verify=yes", "verify"),
        (
            builder().tls(Tls::new().client_certificate_files("/a", "/b")),
            "rediss://h?cert_file=/c&key_file=/b",
            "cert_file",
        ),
        (builder().sentinel_user("a"), "redis+sentinel://h/m?sentinel_user=b", "sentinel_user"),
        (
            builder().sentinel_password_from_file("/a"),
            "redis+sentinel://h/m?sentinel_password_file=/b",
            "sentinel_password_file",
        ),
        (
            builder().sentinel_password_from_env("A"),
            "redis+sentinel://h/m?sentinel_password_env=B",
            "sentinel_password_env",
        ),
        (
            builder().cluster_messages(ClusterMessages::Plain),
            "redis+cluster://h?messages=sharded",
            "messages",
        ),
    ] {
        assert_bad_setting(builder.connect(url).await, setting, url);
    }
}

#[tokio::test]
async fn builder_and_url_can_agree_or_complement_each_other() {
    for (builder, url) in [
        (builder().user("me").password("pass").database(1), "redis+unix://me:pass@/nowhere?db=1"),
        (builder().user("me"), "redis+unix://:pass@/nowhere"),
        (builder().password("pass"), "redis+unix://me@/nowhere"),
        (builder().connect_timeout(ms(1_000)), "redis+unix:///nowhere?connect_timeout=1s"),
        (builder().replicas(0), UNIX),
    ] {
        let error = builder.connect(url).await.expect_err("no such socket");
        assert!(matches!(error, Error::Unavailable { .. }), "{url}: {error}");
    }
}

#[tokio::test]
async fn settings_must_fit_the_store() {
    let tls = || builder().tls(Tls::new());
    for (builder, url, setting) in [
        (tls(), "redis://h", "tls"),
        (tls(), UNIX, "tls"),
        (tls(), "memory://", "tls"),
        (builder().tls(Tls::new().server_name("a")), "redis+cluster://h", "server_name"),
        (builder().tls(Tls::new().server_name("")), "rediss://h", "server_name"),
        (builder().database(1), "redis+cluster://h", "database"),
        (builder().client_name("a b"), "redis://h", "client_name"),
        (builder().client_name("a\n"), "redis://h", "client_name"),
        (builder().user("me"), "redis://h", "user"),
        (builder().password(""), "redis://h", "password"),
        (builder().password("a").password_from_env("PATH"), "redis://h", "password"),
        (builder().sentinel_user("a"), "redis://h", "sentinel_user"),
        (builder().sentinel_password("a"), "redis+cluster://h", "sentinel_password"),
        (builder().cluster_messages(ClusterMessages::Auto), "redis://h", "messages"),
        (builder().replicas(1), "memory://", "replicas"),
        (builder().fail_on_deadlock(true).announce_waits(false), "memory://", "fail_on_deadlock"),
        (builder().password("a"), "memory://", "password"),
        (builder(), "redis://h?connect_timeout=0s", "connect_timeout"),
        (builder(), "redis://h?response_timeout=10s", "response_timeout"),
    ] {
        assert_bad_setting(builder.connect(url).await, setting, url);
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn certificates_are_checked_when_connecting() {
    let tls = Tls::new().ca_pem("no certificate");
    assert_bad_setting(builder().tls(tls).connect("rediss://h").await, "ca_file", "no certificate");
    let tls = Tls::new().client_certificate_pem("no certificate", "no key").danger_accept_any_server();
    assert_bad_setting(builder().tls(tls).cluster(&["h"]).await, "cert_file", "no client certificate");
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn tls_needs_the_feature() {
    let error = builder().connect("rediss://h").await.expect_err("built without TLS");
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("`tls`")), "{error}");
}

#[tokio::test]
async fn sentinels_and_seeds_of_the_builder_are_checked() {
    let none: [&str; 0] = [];
    assert_bad_setting(builder().sentinel("m", &none).await, "sentinels", "no sentinel");
    assert_bad_setting(builder().cluster(&none).await, "seeds", "no seed");
    assert_bad_setting(builder().sentinel("", &["h"]).await, "master_name", "no name");
    assert_bad_setting(builder().sentinel("m", &["h", "h:x"]).await, "sentinels", "a bad port");
    assert_bad_setting(builder().cluster(&["redis://h"]).await, "seeds", "a URL");
    assert_bad_setting(builder().database(1).cluster(&["h"]).await, "database", "a database");
    let blocking = crate::blocking::Builder::from(builder());
    assert_bad_setting_blocking(move || blocking.cluster(&["a:b:c"]).map(drop), "seeds").await;
    let blocking = crate::blocking::Builder::from(builder());
    assert_bad_setting_blocking(move || blocking.sentinel("", &["a"]).map(drop), "master_name").await;
}

async fn assert_bad_setting_blocking<F>(connect: F, expected: &str)
where
    F: FnOnce() -> Result<(), Error> + Send + 'static,
{
    let error = tokio::task::spawn_blocking(connect).await.expect("no panic").expect_err("a bad setting");
    assert!(matches!(&error, Error::BadConfiguration { setting, .. } if *setting == expected), "{error}");
}

#[tokio::test]
async fn credentials_of_the_url_must_match_the_builder() {
    let url = "redis+unix://me:word@/nowhere/at/all?db=3";
    assert_bad_setting(builder().password("another").connect(url).await, "password", "another password");
    assert_bad_setting(builder().database(4).connect(url).await, "database", "another database");
    let error = builder().password("word").database(3).connect(url).await.expect_err("no such socket");
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains("/nowhere"), "{error}");
}

#[test]
fn debug_shows_no_password_and_no_key() {
    let tls = Tls::new().client_certificate_pem("quokka", "quokka").ca_pem("quokka");
    let builder = builder().password("quokka").sentinel_password("quokka").tls(tls);
    let shown = format!("{builder:?} {builder:#?}");
    assert!(!shown.contains("quokka") && shown.contains("(secret)"), "{shown}");
    // The beginning of "quokka" as bytes.
    assert!(!shown.contains("113, 117"), "{shown}");
}

#[tokio::test]
async fn all_clients_of_the_unnamed_memory_store_share_it() {
    let (one, two) = (Client::connect("memory://").await, Client::connect("memory://").await);
    let (one, two) = (one.expect("a store"), two.expect("a store"));
    let name = "all_clients_of_the_unnamed_memory_store_share_it";
    let guard = one.lock(name).await.expect("free");
    assert!(two.lock(name).try_lock().await.expect("a reply").is_busy());
    let named = Client::connect("memory://another").await.expect("a store");
    assert!(named.lock(name).try_lock().await.expect("a reply").acquired().is_some());
    let own = builder().memory(&MemoryStore::new()).expect("a store");
    assert!(own.lock(name).try_lock().await.expect("a reply").acquired().is_some());
    guard.unlock().await.expect("held");
}
