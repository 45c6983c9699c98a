//! Output of the program on standard error and on a terminal.

use std::time::SystemTime;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::fixture::Fixture;
use crate::program::time_of;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    events_are_printed_in_order,
    giving_up_is_an_event,
    a_closed_stderr_is_ignored,
    waiting_prints_nothing_without_a_terminal,
    control_characters_in_errors_are_escaped
];

pub(crate) const TERMINAL_CASES: &[Case] = cases![
    ctrl_c_is_not_forwarded,
    the_waiting_line_shows_the_holder,
    the_waiting_line_shows_until_when_a_lock_is_kept,
    ctrl_c_clears_the_waiting_line,
];

fn parse(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
}

async fn events_are_printed_in_order(fixture: Fixture) {
    let (code, stderr) = fixture.script(&["--json", "--fenced"], "exit 5").finish().await;
    assert_eq!(code, 5);
    let mut events = parse(&stderr);
    // A slow store may cause a `waiting` event.
    events.retain(|event| event["event"] != "waiting");
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["acquired", "started", "exited", "released"]);
    assert!(
        events
            .iter()
            .all(|event| event["name"] == fixture.name.as_str() && time_of(event) <= SystemTime::now()),
        "{stderr}"
    );
    let [acquired, started, exited, _] = &events[..] else { panic!("{stderr}") };
    assert!(acquired["owner"].as_str().is_some_and(|owner| owner.ends_with(":1")), "{acquired}");
    assert!(acquired["token"].is_u64() && acquired["waited_ms"].is_u64(), "{acquired}");
    assert!(started["pid"].is_u64(), "{started}");
    assert_eq!((&exited["code"], &exited["signal"]), (&Value::from(5), &Value::Null));

    let (_, stderr) = fixture.script(&["--json", "--at-least", "20s"], "exit 0").finish().await;
    let events = parse(&stderr);
    let delayed = events.last().expect("an event");
    assert_eq!(delayed["event"], "kept", "{stderr}");
    assert!(delayed["for_ms"].as_u64().is_some_and(|time| (1..=20_000).contains(&time)), "{delayed}");
}

async fn giving_up_is_an_event(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let _holder = fixture.hold(&[]).await;
    let (code, stderr) = fixture.run(&["--json", "-w", "1s"], &["true"]).finish().await;
    assert_eq!(code, 1);
    let events = parse(&stderr);
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["waiting", "gave_up"]);
    assert!(events[1]["waited_ms"].as_u64().is_some_and(|time| time >= 1_000), "{stderr}");
}

async fn a_closed_stderr_is_ignored(fixture: Fixture) {
    let mut program = fixture.script(&["--json"], "echo ready; exec sleep 60");
    program.expect("ready").await;
    program.close_stderr();
    // The signal ends the command. The event cannot be written.
    program.signal(Signal::USR1);
    assert_eq!(program.code().await, 128 + Signal::USR1.as_raw());
    assert!(fixture.is_free(&[]).await);
}

async fn waiting_prints_nothing_without_a_terminal(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let mut holder = fixture.hold(&[]).await;
    for flags in [&[][..], &["-q"]] {
        let (code, stderr) = fixture.run(&[flags, &["-w", "300ms"]].concat(), &["true"]).finish().await;
        assert_eq!((code, stderr.as_str()), (1, ""));
    }
    let quiet = ["-q", "--lease", "3s"];
    holder.close();
    assert_eq!(fixture.run(&quiet, &["sleep", "60"]).finish().await, (79, String::new()));
}

async fn control_characters_in_errors_are_escaped(fixture: Fixture) {
    let hostile = "no\x1b[2J\nsuch";
    let (code, stderr) = fixture.run(&[], &[hostile]).finish().await;
    assert_eq!(code, 127, "{stderr}");
    assert!(stderr.contains(r"cannot run no\u{1b}[2J\nsuch: ") && !stderr.contains('\x1b'), "{stderr:?}");
    // An error text of the server is untrusted.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fixture = fixture.on(format!("redis://{}", listener.local_addr().unwrap()));
    let server = async {
        let mut clients = JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            clients.spawn(async move {
                let mut request = Vec::new();
                while client.read_buf(&mut request).await.is_ok_and(|length| length > 0) {
                    // Every command in RESP begins with a star.
                    let commands = request.drain(..).filter(|byte| *byte == b'*').count();
                    let _ = client.write_all(&b"-NOPERM \x1b[31mred\x07\r\n".repeat(commands)).await;
                }
            });
        }
    };
    let (code, stderr) = tokio::select! {
        never = server => never,
        ended = fixture.run(&[], &["true"]).finish() => ended,
    };
    assert_eq!(code, 77, "{stderr:?}");
    assert!(stderr.contains(r"\u{1b}[31mred\u{7}") && !stderr.contains('\x1b'), "{stderr:?}");
}

async fn ctrl_c_is_not_forwarded(fixture: Fixture) {
    let script = "n=0; trap 'n=$((n + 1))' INT; echo ready; until read line || [ $n -gt 9 ]; do :; done; echo ints=$n.";
    let mut terminal = Terminal::start(&fixture, &["--json", &fixture.name, "sh", "-c", script]);
    terminal.shows("ready\r\n").await;
    terminal.press("\x03").await;
    terminal.shows(r#""forwarded":false"#).await;
    terminal.press("\n").await;
    terminal.shows("ints=1.").await;
    terminal.shows(r#""event":"released""#).await;
    assert_eq!(terminal.code().await, 0);

    let holder = fixture.hold(&[]).await;
    let mut terminal = Terminal::start(&fixture, &["--json", &fixture.name, "true"]);
    terminal.shows(r#""event":"waiting""#).await;
    terminal.press("\x03").await;
    assert_eq!(terminal.code().await, 130);
    drop(holder);
}

async fn the_waiting_line_shows_the_holder(fixture: Fixture) {
    let mut holder = fixture.hold(&["--fair", "--label", "the \x1b[2Jother"]).await;
    let mut terminal = Terminal::start(&fixture, &["--fair", &fixture.name, "echo", "mine"]);
    terminal.shows(", 1 of 1 in the queue, for ").await;
    let text = terminal.shows("held by ").await;
    let line = format!(" for {:?}, held by ", fixture.name);
    assert!(text.contains("\r\x1b[Kwaiting ") && text.contains(&line), "{text:?}");
    assert!(!text.contains("\x1b[2J"), "{text:?}");
    holder.close();
    terminal.shows("\r\x1b[Kmine\r\n").await;
    assert_eq!(terminal.code().await, 0);
    assert_eq!(holder.code().await, 0);
}

async fn the_waiting_line_shows_until_when_a_lock_is_kept(fixture: Fixture) {
    let kept = fixture.run(&["--at-least", "10m", "--label", "nightly"], &["true"]);
    assert_eq!(kept.code().await, 0);
    let mut terminal = Terminal::start(&fixture, &[&fixture.name, "true"]);
    let text = terminal.shows("Z (nightly), lease ").await;
    assert!(text.contains(&format!(" for {:?}, kept until ", fixture.name)), "{text:?}");
    terminal.press("\x03").await;
    assert_eq!(terminal.code().await, 130);
}

async fn ctrl_c_clears_the_waiting_line(fixture: Fixture) {
    let holder = fixture.hold(&[]).await;
    let mut terminal = Terminal::start(&fixture, &[&fixture.name, "true"]);
    terminal.shows("\r\x1b[Kwaiting ").await;
    terminal.press("\x03").await;
    let text = terminal.shows("^C\r\x1b[K").await;
    assert!(text.ends_with("\r\x1b[K"), "{text:?}");
    assert_eq!(terminal.code().await, 130);
    drop(holder);
}
