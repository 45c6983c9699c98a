//! TLS: which connections succeed, and the errors of those that fail.

use std::fs;
use std::path::Path;
use std::time::Instant;

use turnlock::{Client, Error, Tls};
use turnlock_testkit::{Certificates, RedisServer, TlsServer, in_time, within};

use crate::fixture::{NO_POLL, PROMPT, ms};
use crate::{CaseFuture, trial_of};

/// A case that starts its own servers.
type Case = (&'static str, fn() -> CaseFuture);

macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), || Box::pin($case()))),*] };
}

const CASES: &[Case] = cases![
    the_right_ca_is_accepted,
    an_ip_address_in_the_certificate_is_accepted,
    a_waiter_is_woken_by_a_message,
    a_broken_connection_is_replaced,
    a_wrong_ca_is_reported,
    the_system_cas_are_used_when_none_is_named,
    a_wrong_server_name_is_reported_and_can_be_set,
    any_server_is_accepted_without_verification,
    plaintext_to_a_tls_port_is_reported,
    tls_to_a_plaintext_port_is_reported,
    tls_to_a_plaintext_port_with_a_password_is_reported,
    a_missing_client_certificate_is_reported,
    a_client_certificate_is_sent,
    a_client_certificate_of_another_ca_is_reported,
    tls_1_2_is_supported,
    a_password_works_over_tls,
];

/// Returns why TLS cases cannot run here.
pub(crate) fn missing() -> Option<String> {
    let without = || (!cfg!(feature = "tls")).then(|| "built without the feature `tls`".to_owned());
    without().or_else(TlsServer::missing)
}

pub(crate) fn trials() -> impl Iterator<Item = libtest_mimic::Trial> {
    let missing = missing();
    CASES.iter().map(move |(name, case)| trial_of(&format!("redis::tls::{name}"), missing.clone(), *case))
}

/// Asserts that a client connects, and can lock.
async fn assert_connects(builder: turnlock::Builder, url: &str) {
    let client = builder.connect(url).await.expect(url);
    client.lock("tls").lock().await.expect("free").unlock().await.expect("held");
}

/// The text of the error, which is returned well within the connect time-out.
async fn connect_error(url: &str) -> String {
    let start = Instant::now();
    let error = Client::connect(url).await.expect_err(url);
    in_time("the error", start, ms(4_000));
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    turnlock_testkit::error_chain(&error)
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// The address of the server, with these parameters.
fn url(server: &TlsServer, parameters: &str) -> String {
    format!("rediss://localhost:{}?{parameters}", server.tls_port())
}

fn file(parameter: &str, path: &Path) -> String {
    format!("{parameter}={}", path.display())
}

async fn the_right_ca_is_accepted() {
    let server = TlsServer::start().await;
    assert_connects(Client::builder(), &server.url()).await;
    let ca = fs::read(server.certificates().ca_file()).unwrap();
    assert_connects(Client::builder().tls(Tls::new().ca_pem(ca)), &url(&server, "")).await;
    let tls = Tls::new().ca_file(server.certificates().ca_file());
    assert_connects(Client::builder().tls(tls), &server.url()).await;
}

async fn an_ip_address_in_the_certificate_is_accepted() {
    let server = TlsServer::start().await;
    assert_connects(Client::builder(), &server.url().replace("localhost", "127.0.0.1")).await;
    let nameless = TlsServer::start_with(&["localhost"], false, &[]).await;
    assert_contains(
        &connect_error(&nameless.url().replace("localhost", "127.0.0.1")).await,
        &["not for 127.0.0.1 but for localhost"],
    );
}

async fn a_waiter_is_woken_by_a_message() {
    let server = TlsServer::start().await;
    let connect =
        async || Client::builder().poll_interval(NO_POLL).connect(&server.url()).await.expect("a server");
    let (one, two) = (connect().await, connect().await);
    let guard = one.lock("n").lock().await.expect("free");
    let lock = two.lock("n");
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    let lock = two.lock("n");
    crate::fixture::until_waiting(&lock, 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "the message", waiter).await.expect("no panic").expect("its turn");
}

async fn a_broken_connection_is_replaced() {
    let mut server = TlsServer::start().await;
    let client = Client::connect(&server.url()).await.expect("a server");
    client.lock("n").lock().await.expect("free").unlock().await.expect("held");
    server.server_mut().restart().await;
    client.lock("n").lock().await.expect("free").unlock().await.expect("held");
}

async fn a_wrong_ca_is_reported() {
    let server = TlsServer::start().await;
    let others = Certificates::new(&TlsServer::NAMES);
    let text = connect_error(&url(&server, &file("ca_file", &others.ca_file()))).await;
    assert_contains(&text, &["not signed by the CA in `ca_file`", "localhost:"]);
}

async fn the_system_cas_are_used_when_none_is_named() {
    let server = TlsServer::start().await;
    let error = Client::connect(&url(&server, "")).await.expect_err("ours is not among them");
    let error = turnlock_testkit::error_chain(&error);
    // A system may have none at all, which is reported by the same name.
    assert_contains(&error, &["ca_file", "system"]);
}

async fn a_wrong_server_name_is_reported_and_can_be_set() {
    let server = TlsServer::start_with(&["redis.example"], false, &[]).await;
    assert_contains(
        &connect_error(&server.url()).await,
        &["not for localhost but for redis.example;", "server_name"],
    );
    assert_connects(Client::builder(), &format!("{}&server_name=redis.example", server.url())).await;
    assert_connects(Client::builder().tls(Tls::new().server_name("redis.example")), &server.url()).await;
    let text = connect_error(&format!("{}&server_name=other.example", server.url())).await;
    assert_contains(&text, &["not for other.example"]);
}

async fn any_server_is_accepted_without_verification() {
    let server = TlsServer::start_with(&["redis.example"], false, &[]).await;
    assert_connects(Client::builder(), &url(&server, "verify=no")).await;
    assert_connects(Client::builder().tls(Tls::new().danger_accept_any_server()), &url(&server, "")).await;
}

async fn plaintext_to_a_tls_port_is_reported() {
    let server = TlsServer::start().await;
    let port = server.tls_port();
    assert_contains(&connect_error(&format!("redis://localhost:{port}")).await, &["TLS", "use rediss://"]);
    assert_contains(
        &connect_error(&format!("redis://me:pass@localhost:{port}/1")).await,
        &["TLS", "use rediss://"],
    );
}

async fn tls_to_a_plaintext_port_is_reported() {
    let server = RedisServer::start().await;
    let text = connect_error(&format!("rediss://localhost:{}?verify=no", server.port())).await;
    assert_contains(&text, &["does not speak TLS", "use redis://"]);
}

async fn tls_to_a_plaintext_port_with_a_password_is_reported() {
    let server = RedisServer::start_with(&["--requirepass", "pass"]).await;
    let text = connect_error(&format!("rediss://:pass@127.0.0.1:{}?verify=no", server.port())).await;
    assert_contains(&text, &["does not speak TLS", "use redis://"]);
}

async fn a_missing_client_certificate_is_reported() {
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let server = TlsServer::start_with(&TlsServer::NAMES, true, &["--tls-protocols", protocols]).await;
        assert_contains(&connect_error(&server.url()).await, &["certificate", "cert_file", "key_file"]);
    }
}

async fn a_client_certificate_is_sent() {
    let server = TlsServer::start_with(&TlsServer::NAMES, true, &[]).await;
    let ours = server.certificates();
    let (cert, key) = (ours.client_cert_file(), ours.client_key_file());
    let parameters = [file("cert_file", &cert), file("key_file", &key)].join("&");
    assert_connects(Client::builder(), &format!("{}&{parameters}", server.url())).await;
    let tls = Tls::new().client_certificate_files(&cert, &key);
    assert_connects(Client::builder().tls(tls), &server.url()).await;
    let tls = Tls::new().client_certificate_pem(fs::read(cert).unwrap(), fs::read(key).unwrap());
    assert_connects(Client::builder().tls(tls), &server.url()).await;
}

async fn a_client_certificate_of_another_ca_is_reported() {
    let others = Certificates::new(&TlsServer::NAMES);
    let (cert, key) = (others.client_cert_file(), others.client_key_file());
    let parameters = [file("cert_file", &cert), file("key_file", &key)].join("&");
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let server = TlsServer::start_with(&TlsServer::NAMES, true, &["--tls-protocols", protocols]).await;
        assert_contains(
            &connect_error(&format!("{}&{parameters}", server.url())).await,
            &["certificate", "cert_file"],
        );
    }
    let ours = Certificates::new(&TlsServer::NAMES);
    let tls = Tls::new().client_certificate_files(cert, ours.client_key_file()).danger_accept_any_server();
    let error = Client::builder().tls(tls).connect("rediss://localhost").await.expect_err("another's key");
    assert!(matches!(error, Error::BadConfiguration { setting: "cert_file", .. }), "{error}");
}

async fn tls_1_2_is_supported() {
    let server = TlsServer::start_with(&TlsServer::NAMES, false, &["--tls-protocols", "TLSv1.2"]).await;
    assert_connects(Client::builder(), &server.url()).await;
}

async fn a_password_works_over_tls() {
    let server = TlsServer::start_with(&TlsServer::NAMES, false, &["--requirepass", "pass"]).await;
    assert_connects(Client::builder().password("pass"), &server.url()).await;
    let error = Client::builder().password("word").connect(&server.url()).await.expect_err("wrong");
    assert!(matches!(error, Error::Denied { .. }), "{error}");
}
