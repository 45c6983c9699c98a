//! Servers that speak TLS: who is let in, and what is said to those who are not.

use std::fs;
use std::path::Path;
use std::time::Instant;

use turnlock::{Client, Error, Tls};
use turnlock_testkit::{Certificates, RedisServer, TlsServer, in_time, within};

use crate::rig::{NO_POLL, PROMPT, ms};
use crate::{CaseFuture, trial_of};

/// A case that has servers of its own.
type Case = (&'static str, fn() -> CaseFuture);

macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), || Box::pin($case()))),*] };
}

const CASES: &[Case] = cases![
    the_right_authority_lets_us_in,
    an_ip_address_is_as_good_as_a_name,
    a_waiter_is_woken_by_a_message,
    a_connection_that_broke_is_made_again,
    the_wrong_authority_is_told,
    the_authorities_of_the_system_are_taken_when_none_is_named,
    the_wrong_name_is_told_and_may_be_given,
    any_server_will_do_if_that_is_wanted,
    plain_words_to_a_port_with_tls_are_told,
    tls_to_a_port_without_it_is_told,
    tls_to_a_port_without_it_that_wants_a_password_is_told,
    a_missing_certificate_of_ours_is_told,
    a_certificate_of_ours_is_shown,
    a_certificate_of_ours_by_somebody_else_is_told,
    tls_1_2_is_spoken_too,
    a_password_goes_with_it,
    a_redis_client_with_tls_is_refused_with_advice,
];

/// Why there is no TLS here.
pub(crate) fn missing() -> Option<String> {
    let without = || (!cfg!(feature = "tls")).then(|| "built without the feature `tls`".to_owned());
    without().or_else(TlsServer::missing)
}

pub(crate) fn trials() -> impl Iterator<Item = libtest_mimic::Trial> {
    let missing = missing();
    CASES.iter().map(move |(name, case)| trial_of(&format!("redis::tls::{name}"), missing.clone(), *case))
}

/// Connects, and has a lock for a moment.
async fn lets_in(builder: turnlock::Builder, url: &str) {
    let client = builder.connect(url).await.expect(url);
    client.lock("door").lock().await.expect("free").unlock().await.expect("held");
}

/// The words of the error, which came well within the limit on connecting.
async fn refused(url: &str) -> String {
    let start = Instant::now();
    let error = Client::connect(url).await.expect_err(url);
    in_time("the error", start, ms(4_000));
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    error.to_string()
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// The address of the server, with these parameters.
fn url(server: &TlsServer, parameters: &str) -> String {
    format!("rediss://localhost:{}?{parameters}", server.tls_port())
}

fn file(parameter: &str, path: &Path) -> String {
    format!("{parameter}={}", path.display())
}

async fn the_right_authority_lets_us_in() {
    let server = TlsServer::start().await;
    lets_in(Client::builder(), &server.url()).await;
    let ca = fs::read(server.certificates().ca_file()).unwrap();
    lets_in(Client::builder().tls(Tls::new().ca_pem(ca)), &url(&server, "")).await;
    let tls = Tls::new().ca_file(server.certificates().ca_file());
    lets_in(Client::builder().tls(tls), &server.url()).await;
}

async fn an_ip_address_is_as_good_as_a_name() {
    let server = TlsServer::start().await;
    lets_in(Client::builder(), &server.url().replace("localhost", "127.0.0.1")).await;
    let nameless = TlsServer::start_with(&["localhost"], false, &[]).await;
    says(
        &refused(&nameless.url().replace("localhost", "127.0.0.1")).await,
        &["not for 127.0.0.1 but for localhost"],
    );
}

async fn a_waiter_is_woken_by_a_message() {
    let server = TlsServer::start().await;
    let connect = async || Client::builder().poll(NO_POLL).connect(&server.url()).await.expect("a server");
    let (one, two) = (connect().await, connect().await);
    let guard = one.lock("n").lock().await.expect("free");
    let lock = two.lock("n");
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    let lock = two.lock("n");
    crate::rig::until_waiting(&lock, 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "the message", waiter).await.expect("no panic").expect("its turn");
}

async fn a_connection_that_broke_is_made_again() {
    let mut server = TlsServer::start().await;
    let client = Client::connect(&server.url()).await.expect("a server");
    client.lock("n").lock().await.expect("free").unlock().await.expect("held");
    server.server_mut().restart().await;
    client.lock("n").lock().await.expect("free").unlock().await.expect("held");
}

async fn the_wrong_authority_is_told() {
    let server = TlsServer::start().await;
    let others = Certificates::new(&TlsServer::NAMES);
    let text = refused(&url(&server, &file("ca_file", &others.ca_file()))).await;
    says(&text, &["not signed by the CA in `ca_file`", "localhost:"]);
}

async fn the_authorities_of_the_system_are_taken_when_none_is_named() {
    let server = TlsServer::start().await;
    let error = Client::connect(&url(&server, "")).await.expect_err("ours is not among them").to_string();
    // A system may have none at all, which is told by the same name.
    says(&error, &["ca_file", "system"]);
}

async fn the_wrong_name_is_told_and_may_be_given() {
    let server = TlsServer::start_with(&["redis.example"], false, &[]).await;
    says(&refused(&server.url()).await, &["not for localhost but for redis.example;", "server_name"]);
    lets_in(Client::builder(), &format!("{}&server_name=redis.example", server.url())).await;
    lets_in(Client::builder().tls(Tls::new().server_name("redis.example")), &server.url()).await;
    let text = refused(&format!("{}&server_name=other.example", server.url())).await;
    says(&text, &["not for other.example"]);
}

async fn any_server_will_do_if_that_is_wanted() {
    let server = TlsServer::start_with(&["redis.example"], false, &[]).await;
    lets_in(Client::builder(), &url(&server, "verify=no")).await;
    lets_in(Client::builder().tls(Tls::new().danger_accept_any_server()), &url(&server, "")).await;
}

async fn plain_words_to_a_port_with_tls_are_told() {
    let server = TlsServer::start().await;
    let port = server.tls_port();
    says(&refused(&format!("redis://localhost:{port}")).await, &["TLS", "use rediss://"]);
    says(&refused(&format!("redis://me:pass@localhost:{port}/1")).await, &["TLS", "use rediss://"]);
}

async fn tls_to_a_port_without_it_is_told() {
    let server = RedisServer::start().await;
    let text = refused(&format!("rediss://localhost:{}?verify=no", server.port())).await;
    says(&text, &["does not speak TLS", "use redis://"]);
}

async fn tls_to_a_port_without_it_that_wants_a_password_is_told() {
    let server = RedisServer::start_with(&["--requirepass", "pass"]).await;
    let text = refused(&format!("rediss://:pass@127.0.0.1:{}?verify=no", server.port())).await;
    says(&text, &["does not speak TLS", "use redis://"]);
}

async fn a_missing_certificate_of_ours_is_told() {
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let server = TlsServer::start_with(&TlsServer::NAMES, true, &["--tls-protocols", protocols]).await;
        says(&refused(&server.url()).await, &["certificate", "cert_file", "key_file"]);
    }
}

async fn a_certificate_of_ours_is_shown() {
    let server = TlsServer::start_with(&TlsServer::NAMES, true, &[]).await;
    let ours = server.certificates();
    let (cert, key) = (ours.client_cert_file(), ours.client_key_file());
    let parameters = [file("cert_file", &cert), file("key_file", &key)].join("&");
    lets_in(Client::builder(), &format!("{}&{parameters}", server.url())).await;
    let tls = Tls::new().client_certificate_files(&cert, &key);
    lets_in(Client::builder().tls(tls), &server.url()).await;
    let tls = Tls::new().client_certificate_pem(fs::read(cert).unwrap(), fs::read(key).unwrap());
    lets_in(Client::builder().tls(tls), &server.url()).await;
}

async fn a_certificate_of_ours_by_somebody_else_is_told() {
    let others = Certificates::new(&TlsServer::NAMES);
    let (cert, key) = (others.client_cert_file(), others.client_key_file());
    let parameters = [file("cert_file", &cert), file("key_file", &key)].join("&");
    for protocols in ["TLSv1.2", "TLSv1.3"] {
        let server = TlsServer::start_with(&TlsServer::NAMES, true, &["--tls-protocols", protocols]).await;
        says(&refused(&format!("{}&{parameters}", server.url())).await, &["certificate", "cert_file"]);
    }
    let ours = Certificates::new(&TlsServer::NAMES);
    let tls = Tls::new().client_certificate_files(cert, ours.client_key_file()).danger_accept_any_server();
    let error = Client::builder().tls(tls).connect("rediss://localhost").await.expect_err("another's key");
    assert!(matches!(error, Error::BadConfiguration { setting: "cert_file", .. }), "{error}");
}

async fn tls_1_2_is_spoken_too() {
    let server = TlsServer::start_with(&TlsServer::NAMES, false, &["--tls-protocols", "TLSv1.2"]).await;
    lets_in(Client::builder(), &server.url()).await;
}

async fn a_password_goes_with_it() {
    let server = TlsServer::start_with(&TlsServer::NAMES, false, &["--requirepass", "pass"]).await;
    lets_in(Client::builder().password("pass"), &server.url()).await;
    let error = Client::builder().password("word").connect(&server.url()).await.expect_err("wrong");
    assert!(matches!(error, Error::Denied { .. }), "{error}");
}

async fn a_redis_client_with_tls_is_refused_with_advice() {
    let address = redis::ConnectionAddr::TcpTls {
        host: "localhost".to_owned(),
        port: 1,
        insecure: false,
        tls_params: None,
    };
    let client = redis::Client::open(address).expect("opened, though not for use");
    let error = Client::builder().redis(client).await.expect_err("its certificates are not known");
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("rediss://")), "{error}");
}
