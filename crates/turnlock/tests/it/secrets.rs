//! A password is shown nowhere: however it is configured, and whatever fails then.
//!
//! All of it runs in a child of this program, which has the password in its environment and collects all `tracing` events of
//! its process.

use std::error::Error as _;
use std::fmt::{Debug, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use turnlock::{Builder, Client, Error};
use turnlock_testkit::{RedisServer, TlsServer, eventually, within};

use crate::fixture::ms;
use crate::{child, tls, trial_of};

/// The password. Each part between special characters contains the word that must not appear, in case it is split there.
const PASSWORD: &str = "Quokka1/Quokka2@Quokka3?Quokka4#Quokka5%Quokka6:Quokka7";
const ENCODED: &str = "Quokka1%2FQuokka2%40Quokka3%3FQuokka4%23Quokka5%25Quokka6%3AQuokka7";
const WORD: &str = "quokka";
const VARIABLE: &str = "TURNLOCK_TEST_PASSWORD";

pub(crate) fn trial() -> libtest_mimic::Trial {
    let missing = tls::missing();
    trial_of("redis::secrets::a_password_is_shown_nowhere", missing, a_password_is_shown_nowhere)
}

async fn a_password_is_shown_nowhere() {
    let child = tokio::process::Command::new(std::env::current_exe().expect("this program"))
        .env(child::ENV_VAR, "secrets -")
        .env(VARIABLE, PASSWORD)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a child");
    let output = within(ms(150_000), "the child ends", child.wait_with_output()).await.expect("its output");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let piece = |line: &str| line.to_lowercase().split_once(WORD).map(|(before, _)| before.to_owned());
    // The text before it is enough to find where it was shown.
    let shown: Vec<_> = stdout.lines().filter_map(piece).collect();
    assert!(shown.is_empty() && !stderr.to_lowercase().contains(WORD), "{shown:#?} {stderr}");
    // The output of each kind of failure is there.
    for text in [
        "WRONGPASS",
        "rediss://",
        "does not speak TLS",
        "not for other",
        "not Redis",
        "sentinel",
        "connection lost",
    ] {
        assert!(stdout.contains(text), "no {text:?} in the output");
    }
}

/// The main function of the child. Prints all texts that could be shown to a user.
pub(crate) fn run_child() {
    let events = Events::default();
    tracing::subscriber::set_global_default(events.clone()).expect("the first subscriber");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let file = std::env::temp_dir().join(format!("turnlock-secret-{}", std::process::id()));
        std::fs::write(&file, format!("{PASSWORD}\n")).expect("a file");
        connection_failures(&file).await;
        failures_after_connecting(&file, &events).await;
        std::fs::remove_file(&file).expect("removed");
    });
    println!("{}", events.0.lock().unwrap());
}

/// The ways to pass a password: by a builder, in the user info of the URL, and in its parameters.
fn password_sources(file: &Path) -> Vec<(Builder, String, String)> {
    let builder = Client::builder().connect_timeout(ms(6_000));
    let path = file.display();
    let none = String::new;
    vec![
        (builder.clone(), format!("me:{ENCODED}@"), none()),
        (builder.clone(), format!(":{ENCODED}@"), none()),
        // Not encoded, without a colon, in the wrong place.
        (builder.clone(), format!("me:{PASSWORD}@"), none()),
        (builder.clone(), format!("{ENCODED}@"), none()),
        (builder.clone(), none(), format!("password={ENCODED}")),
        (builder.clone(), none(), format!("db={ENCODED}")),
        (builder.clone(), none(), format!("user=me&password_file={path}")),
        (builder.clone(), none(), format!("password_env={VARIABLE}")),
        (builder.clone().user("me").password(PASSWORD), none(), none()),
        (builder.clone().password_from_file(file), none(), none()),
        (builder.clone().user("me").password_from_env(VARIABLE), none(), none()),
        (builder.clone().password(PASSWORD), "me:another@".to_owned(), none()),
        (builder.clone().password("another"), format!("me:{ENCODED}@"), none()),
        (builder.clone().password(PASSWORD).password_from_file(file), none(), none()),
        (builder.sentinel_password(PASSWORD), none(), none()),
    ]
}

async fn connection_failures(file: &Path) {
    let server = RedisServer::start_with(&["--requirepass", "another one"]).await;
    let tls = TlsServer::start().await;
    let (plain, encrypted) = (server.port(), tls.tls_port());
    let (echo, web) = (listen(OtherServer::Echo).await, listen(OtherServer::Http).await);
    // A port without a server.
    let closed = 1;
    let ca = tls.certificates().ca_file();
    let ca = ca.display();
    let stores = [
        format!("redis://@localhost:{plain}"),
        format!("redis://@localhost:{plain}/1?nonsense=1"),
        format!("redis://@localhost:{closed}"),
        "redis://@local host".to_owned(),
        "redis://@localhost:port".to_owned(),
        "redis://@localhost/database".to_owned(),
        format!("redis://@localhost:{encrypted}"),
        format!("redis://@localhost:{echo}"),
        format!("redis://@localhost:{web}"),
        format!("rediss://@localhost:{encrypted}?ca_file={ca}&server_name=other"),
        format!("rediss://@localhost:{plain}?verify=no"),
        format!("rediss://@localhost:{encrypted}?ca_file={ca}"),
        format!("redis+sentinel://@localhost:{plain},localhost:{closed}/m"),
        format!("redis+sentinel://@localhost:{echo}/m"),
        format!("redis+cluster://@localhost:{plain},localhost:{closed}"),
        "redis+unix://@/nowhere/at/all".to_owned(),
        "memory://@".to_owned(),
        "@localhost".to_owned(),
    ];
    let attempts = password_sources(file).into_iter().flat_map(|(builder, user_info, parameters)| {
        stores.clone().map(|store| {
            let url = store.replacen('@', &user_info, 1);
            let separator = if parameters.is_empty() {
                ""
            } else if url.contains('?') {
                "&"
            } else {
                "?"
            };
            (builder.clone(), format!("{url}{separator}{parameters}"))
        })
    });
    // Concurrently, since some run until their time-out.
    let attempts: Vec<_> = attempts.map(|(builder, url)| tokio::spawn(attempt(builder, url))).collect();
    for attempt in attempts {
        attempt.await.expect("no panic");
    }
    let sentinel = Client::builder().password(PASSWORD).sentinel("m", &[PASSWORD]).await;
    print_error(&sentinel.expect_err("no address"));
    let url = format!("redis://:{ENCODED}@localhost:{plain}");
    print_error(&Client::connect(&url).await.expect_err("a wrong password"));
    print_error(&Client::builder().password("another").connect(&url).await.expect_err("two passwords"));
}

async fn attempt(builder: Builder, url: String) {
    println!("{builder:?}");
    match builder.connect(&url).await {
        Err(error) => print_error(&error),
        // A store without a password.
        Ok(client) => println!("{client:?}"),
    }
}

/// A server that is not Redis.
#[derive(Clone, Copy)]
enum OtherServer {
    /// Sends back what it receives.
    Echo,
    /// An HTTP server.
    Http,
}

/// Starts the server, and returns its port.
async fn listen(server: OtherServer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(serve(server, connection));
        }
    });
    port
}

async fn serve(server: OtherServer, mut connection: TcpStream) {
    // A closed connection is not an error here.
    let _ = match server {
        OtherServer::Echo => {
            let (mut from, mut to) = connection.split();
            tokio::io::copy(&mut from, &mut to).await.map(drop)
        }
        OtherServer::Http => connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await,
    };
}

/// The password is right, and requests fail later.
async fn failures_after_connecting(file: &Path, events: &Events) {
    let mut server = RedisServer::start_with(&["--requirepass", PASSWORD]).await;
    let url = format!("redis://:{ENCODED}@localhost:{}", server.port());
    let by_file = Client::builder().password_from_file(file);
    let plain = format!("redis://localhost:{}", server.port());
    for (builder, url) in [
        (Client::builder(), url.clone()),
        (by_file, plain.clone()),
        (Client::builder().password_from_env(VARIABLE), plain),
    ] {
        let client = builder
            .watchdog_timeout(ms(900))
            .retry_for(ms(300))
            .connect(&url)
            .await
            .expect("the right password");
        let lock = client.lock("n");
        let guard = lock.lock().await.expect("free");
        println!("{client:?} {lock:?} {guard:?}");
        server.stop().await;
        print_error(&client.lock("other").lock().await.expect_err("no server"));
        guard.lost().await;
        print_error(&guard.unlock().await.expect_err("lost"));
        eventually("it is logged", ms(10_000), async || events.has("connection lost")).await;
        server.restart().await;
    }
}

/// Collects all events of this process as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<String>>);

impl Events {
    fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap().contains(text)
    }
}

/// Writes the fields of one event.
struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Events {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Line(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Line(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        event.record(&mut Line(&mut text));
        text.push('\n');
    }
}

/// Prints an error in its `Display` and `Debug` forms, with all its sources.
fn print_error(error: &Error) {
    println!("{error}\n{error:?}\n{error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        println!("{error}\n{error:?}");
        cause = error.source();
    }
}
