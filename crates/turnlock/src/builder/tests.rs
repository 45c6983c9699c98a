use super::*;

const UNIX: &str = "redis+unix:///nowhere/at/all";

fn builder() -> Builder {
    Client::builder()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What the builder, and the URL that it is to connect to, are found wrong in.
#[track_caller]
fn assert_named(outcome: Result<Client, Error>, named: &str, case: &str) {
    let error = outcome.expect_err(case);
    assert!(
        matches!(&error, Error::BadConfiguration { setting, .. } if *setting == named),
        "{case}: {error}, and not {named}"
    );
}

#[tokio::test]
async fn builder_and_url_may_not_say_different_things() {
    for (builder, url, named) in [
        (builder().user("me"), "redis://you:pass@h", "user"),
        (builder().password("word"), "redis://me:pass@h", "password"),
        (builder().password_from_file("/a"), "redis://h?password_file=/b", "password_file"),
        (builder().password_from_env("A"), "redis://h?password_env=B", "password_env"),
        (builder().password_from_env("PATH"), "redis://:pass@h", "password"),
        (builder().database(1), "redis://h/2", "database"),
        (builder().client_name("a"), "redis://h?client_name=b", "client_name"),
        (builder().connect_timeout(ms(1)), "redis://h?connect_timeout=1s", "connect_timeout"),
        (builder().response_timeout(ms(1)), "redis://h?response_timeout=1s", "response_timeout"),
        (builder().acknowledged_by(1), "redis://h?replicas=2", "replicas"),
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
        assert_named(builder.connect(url).await, named, url);
    }
}

#[tokio::test]
async fn builder_and_url_may_say_the_same_or_add_to_each_other() {
    for (builder, url) in [
        (builder().user("me").password("pass").database(1), "redis+unix://me:pass@/nowhere?db=1"),
        (builder().user("me"), "redis+unix://:pass@/nowhere"),
        (builder().password("pass"), "redis+unix://me@/nowhere"),
        (builder().connect_timeout(ms(1_000)), "redis+unix:///nowhere?connect_timeout=1s"),
        (builder().acknowledged_by(0), UNIX),
    ] {
        let error = builder.connect(url).await.expect_err("no such socket");
        assert!(matches!(error, Error::Unavailable { .. }), "{url}: {error}");
    }
}

#[tokio::test]
async fn settings_must_fit_the_store() {
    let tls = || builder().tls(Tls::new());
    for (builder, url, named) in [
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
        (builder().acknowledged_by(1), "memory://", "replicas"),
        (builder().password("a"), "memory://", "password"),
        (builder(), "redis://h?connect_timeout=0s", "connect_timeout"),
        (builder(), "redis://h?response_timeout=10s", "response_timeout"),
    ] {
        assert_named(builder.connect(url).await, named, url);
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn certificates_are_looked_at_when_connecting() {
    let tls = Tls::new().ca_pem("no certificate");
    assert_named(builder().tls(tls).connect("rediss://h").await, "ca_file", "no certificate");
    let tls = Tls::new().client_certificate_pem("no certificate", "no key").danger_accept_any_server();
    assert_named(builder().tls(tls).cluster(&["h"]).await, "cert_file", "no certificate of ours");
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn without_the_feature_there_is_no_tls() {
    let error = builder().connect("rediss://h").await.expect_err("built without");
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("`tls`")), "{error}");
}

#[tokio::test]
async fn shapes_by_builder_are_checked_too() {
    let none: [&str; 0] = [];
    assert_named(builder().sentinel("m", &none).await, "addresses", "no sentinel");
    assert_named(builder().cluster(&none).await, "addresses", "no seed");
    assert_named(builder().sentinel("", &["h"]).await, "master_name", "no name");
    assert_named(builder().sentinel("m", &["h", "h:x"]).await, "addresses", "a bad port");
    assert_named(builder().cluster(&["redis://h"]).await, "addresses", "a URL");
    assert_named(builder().database(1).cluster(&["h"]).await, "database", "a database");
    let blocking = crate::blocking::Client::builder(builder());
    assert_named_blocking(move || blocking.cluster(&["a:b:c"]).map(drop), "addresses").await;
    let blocking = crate::blocking::Client::builder(builder());
    assert_named_blocking(move || blocking.sentinel("", &["a"]).map(drop), "master_name").await;
}

async fn assert_named_blocking<F>(connect: F, named: &str)
where
    F: FnOnce() -> Result<(), Error> + Send + 'static,
{
    let error = tokio::task::spawn_blocking(connect).await.expect("no panic").expect_err("wrong");
    assert!(matches!(&error, Error::BadConfiguration { setting, .. } if *setting == named), "{error}");
}

#[tokio::test]
async fn an_existing_client_is_taken_with_its_login() {
    let client =
        || redis::Client::open("redis+unix:///nowhere/at/all?db=3&user=me&pass=word").expect("a URL");
    assert_named(builder().password("another").redis(client()).await, "password", "another password");
    assert_named(builder().database(4).redis(client()).await, "database", "another database");
    let error = builder().password("word").database(3).redis(client()).await.expect_err("no such socket");
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains("/nowhere"), "{error}");
}

#[test]
fn nothing_of_a_password_or_a_key_is_shown() {
    let tls = Tls::new().client_certificate_pem("quokka", "quokka").ca_pem("quokka");
    let builder = builder().password("quokka").sentinel_password("quokka").tls(tls);
    let shown = format!("{builder:?} {builder:#?}");
    assert!(!shown.contains("quokka") && shown.contains("(secret)"), "{shown}");
    // Bytes would be shown as numbers.
    assert!(!shown.contains("113, 117"), "{shown}");
}
