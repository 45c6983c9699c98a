//! A password is shown nowhere: by whatever way it came in, and whatever goes wrong then.
//!
//! All of it happens in a child of this program, which has the password in its environment and hears every word of
//! `tracing` in its process.

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

use crate::rig::ms;
use crate::{child, tls, trial_of};

/// The password. Each of its pieces has the word that must not be found, also where somebody splits it.
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
        .env(child::VARIABLE, "secrets -")
        .env(VARIABLE, PASSWORD)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a child");
    let output = within(ms(150_000), "the child ends", child.wait_with_output()).await.expect("its words");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    let piece = |line: &str| line.to_lowercase().split_once(WORD).map(|(before, _)| before.to_owned());
    // What stands before it tells enough of where it was shown.
    let shown: Vec<_> = said.lines().filter_map(piece).collect();
    assert!(shown.is_empty() && !complaint.to_lowercase().contains(WORD), "{shown:#?} {complaint}");
    // It has been where it should: at the end of each of these roads.
    for word in [
        "Password authentication failed",
        "rediss://",
        "does not speak TLS",
        "not for other",
        "not Redis",
        "sentinel",
        "connection lost",
    ] {
        assert!(said.contains(word), "nobody said {word:?}");
    }
}

/// What the child does. All that could be shown to anybody goes to its output.
pub(crate) fn tell_everything() {
    let heard = Heard::default();
    tracing::subscriber::set_global_default(heard.clone()).expect("the first subscriber");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let file = std::env::temp_dir().join(format!("turnlock-secret-{}", std::process::id()));
        std::fs::write(&file, format!("{PASSWORD}\n")).expect("a file");
        every_failure(&file).await;
        after_a_good_start(&file, &heard).await;
        std::fs::remove_file(&file).expect("it is ours");
    });
    println!("{}", heard.0.lock().unwrap());
}

/// The ways in: what is done to a builder, what stands before the host, and what behind the `?`.
fn ways(file: &Path) -> Vec<(Builder, String, String)> {
    let builder = Client::builder().connect_timeout(ms(1_500));
    let path = file.display();
    let no = String::new;
    vec![
        (builder.clone(), format!("me:{ENCODED}@"), no()),
        (builder.clone(), format!(":{ENCODED}@"), no()),
        // Not encoded, without a colon, in the wrong place.
        (builder.clone(), format!("me:{PASSWORD}@"), no()),
        (builder.clone(), format!("{ENCODED}@"), no()),
        (builder.clone(), no(), format!("password={ENCODED}")),
        (builder.clone(), no(), format!("db={ENCODED}")),
        (builder.clone(), no(), format!("user=me&password_file={path}")),
        (builder.clone(), no(), format!("password_env={VARIABLE}")),
        (builder.clone().user("me").password(PASSWORD), no(), no()),
        (builder.clone().password_from_file(file), no(), no()),
        (builder.clone().user("me").password_from_env(VARIABLE), no(), no()),
        (builder.clone().password(PASSWORD), "me:another@".to_owned(), no()),
        (builder.clone().password("another"), format!("me:{ENCODED}@"), no()),
        (builder.clone().password(PASSWORD).password_from_file(file), no(), no()),
        (builder.sentinel_password(PASSWORD), no(), no()),
    ]
}

async fn every_failure(file: &Path) {
    let server = RedisServer::start_with(&["--requirepass", "another one"]).await;
    let tls = TlsServer::start().await;
    let (plain, encrypted) = (server.port(), tls.tls_port());
    let (echo, web) = (listen(Stranger::Echo).await, listen(Stranger::Web).await);
    // Where nobody listens.
    let nobody = 1;
    let ca = tls.certificates().ca_file();
    let ca = ca.display();
    let stores = [
        format!("redis://@localhost:{plain}"),
        format!("redis://@localhost:{plain}/1?nonsense=1"),
        format!("redis://@localhost:{nobody}"),
        "redis://@local host".to_owned(),
        "redis://@localhost:port".to_owned(),
        "redis://@localhost/database".to_owned(),
        format!("redis://@localhost:{encrypted}"),
        format!("redis://@localhost:{echo}"),
        format!("redis://@localhost:{web}"),
        format!("rediss://@localhost:{encrypted}?ca_file={ca}&server_name=other"),
        format!("rediss://@localhost:{plain}?verify=no"),
        format!("rediss://@localhost:{encrypted}?ca_file={ca}"),
        format!("redis+sentinel://@localhost:{plain},localhost:{nobody}/m"),
        format!("redis+sentinel://@localhost:{echo}/m"),
        format!("redis+cluster://@localhost:{plain},localhost:{nobody}"),
        "redis+unix://@/nowhere/at/all".to_owned(),
        "memory://@".to_owned(),
        "@localhost".to_owned(),
    ];
    let attempts = ways(file).into_iter().flat_map(|(builder, before, behind)| {
        stores.clone().map(|store| {
            let url = store.replacen('@', &before, 1);
            let mark = if behind.is_empty() {
                ""
            } else if url.contains('?') {
                "&"
            } else {
                "?"
            };
            (builder.clone(), format!("{url}{mark}{behind}"))
        })
    });
    // Side by side, since some wait until time is up.
    let attempts: Vec<_> = attempts.map(|(builder, url)| tokio::spawn(attempt(builder, url))).collect();
    for attempt in attempts {
        attempt.await.expect("no panic");
    }
    let sentinel = Client::builder().password(PASSWORD).sentinel("m", &[PASSWORD]).await;
    tell(&sentinel.expect_err("no address"));
    let client = redis::Client::open(format!("redis://:{ENCODED}@localhost:{plain}")).expect("a URL");
    tell(&Client::builder().redis(client.clone()).await.expect_err("a wrong password"));
    tell(&Client::builder().password("another").redis(client).await.expect_err("two passwords"));
}

async fn attempt(builder: Builder, url: String) {
    println!("{builder:?}");
    match builder.connect(&url).await {
        Err(error) => tell(&error),
        // Where nobody asks for a password.
        Ok(client) => println!("{client:?}"),
    }
}

/// What stands where a Redis should be.
#[derive(Clone, Copy)]
enum Stranger {
    /// Says what it hears.
    Echo,
    /// A server of the web.
    Web,
}

/// The port on which the stranger listens, for as long as the program runs.
async fn listen(stranger: Stranger) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer(stranger, connection));
        }
    });
    port
}

async fn answer(stranger: Stranger, mut connection: TcpStream) {
    // Whoever hangs up on it does not matter to it.
    let _ = match stranger {
        Stranger::Echo => {
            let (mut from, mut to) = connection.split();
            tokio::io::copy(&mut from, &mut to).await.map(drop)
        }
        Stranger::Web => connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await,
    };
}

/// The password is right, and things go wrong later.
async fn after_a_good_start(file: &Path, heard: &Heard) {
    let mut server = RedisServer::start_with(&["--requirepass", PASSWORD]).await;
    let url = format!("redis://:{ENCODED}@localhost:{}", server.port());
    let by_file = Client::builder().password_from_file(file);
    let plain = format!("redis://localhost:{}", server.port());
    for (builder, url) in [
        (Client::builder(), url.clone()),
        (by_file, plain.clone()),
        (Client::builder().password_from_env(VARIABLE), plain),
    ] {
        let client =
            builder.watchdog(ms(900)).retry_for(ms(300)).connect(&url).await.expect("the right password");
        let lock = client.lock("n");
        let guard = lock.lock().await.expect("free");
        println!("{client:?} {lock:?} {guard:?}");
        server.stop().await;
        tell(&client.lock("other").lock().await.expect_err("nobody there"));
        guard.lost().await;
        tell(&guard.unlock().await.expect_err("lost"));
        eventually("it is told", ms(10_000), async || heard.has("connection lost")).await;
        server.restart().await;
    }
}

/// Writes down everything that is told in this process.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<String>>);

impl Heard {
    fn has(&self, text: &str) -> bool {
        self.0.lock().unwrap().contains(text)
    }
}

/// One line of it.
struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Heard {
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

/// Prints an error, as it is and for those who look inside, with all its causes.
fn tell(error: &Error) {
    println!("{error}\n{error:?}\n{error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        println!("{error}\n{error:?}");
        cause = error.source();
    }
}
