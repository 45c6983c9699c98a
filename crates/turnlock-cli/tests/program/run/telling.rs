//! What the program says, and to whom.

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::rig::Rig;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    events_are_told_as_they_come,
    who_gives_up_says_so,
    nobody_has_to_listen,
    who_waits_is_silent,
    errors_do_nothing_to_the_terminal
];

pub(crate) const TERMINAL_CASES: &[Case] = cases![ctrl_c_arrives_once, a_terminal_shows_what_is_waited_for];

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
}

async fn events_are_told_as_they_come(rig: Rig) {
    let (code, words) = rig.script(&["--json", "--fenced"], "exit 5").finish().await;
    assert_eq!(code, 5);
    let mut events = parsed(&words);
    // A store that is slow for once looks like a lock that is not free.
    events.retain(|event| event["event"] != "waiting");
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["acquired", "started", "exited", "released"]);
    assert!(
        events.iter().all(|event| event["name"] == rig.name.as_str() && event["time"].is_u64()),
        "{words}"
    );
    let [acquired, started, exited, _] = &events[..] else { panic!("{words}") };
    assert!(acquired["owner"].as_str().is_some_and(|owner| owner.ends_with(":1")), "{acquired}");
    assert!(acquired["token"].is_u64() && acquired["waited_ms"].is_u64(), "{acquired}");
    assert!(started["pid"].is_u64(), "{started}");
    assert_eq!((&exited["code"], &exited["signal"]), (&Value::from(5), &Value::Null));

    let (_, words) = rig.script(&["--json", "--at-least", "20s"], "exit 0").finish().await;
    let events = parsed(&words);
    let kept = events.last().expect("an event");
    assert_eq!(kept["event"], "kept", "{words}");
    assert!(kept["for_ms"].as_u64().is_some_and(|time| (1..=20_000).contains(&time)), "{kept}");
}

async fn who_gives_up_says_so(rig: Rig) {
    let rig = rig.patient();
    let _holder = rig.hold(&[]).await;
    let (code, words) = rig.run(&["--json", "-w", "1s"], &["true"]).finish().await;
    assert_eq!(code, 1);
    let events = parsed(&words);
    let names: Vec<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["waiting", "gave_up"]);
    assert!(events[1]["waited_ms"].as_u64().is_some_and(|time| time >= 1_000), "{words}");
}

async fn nobody_has_to_listen(rig: Rig) {
    let mut program = rig.script(&["--json"], "echo ready; exec sleep 60");
    program.expect("ready").await;
    program.stop_listening();
    // The command ends of it, and nobody can be told.
    program.signal(Signal::USR1);
    assert_eq!(program.code().await, 128 + Signal::USR1.as_raw());
    assert!(rig.is_free(&[]).await);
}

async fn who_waits_is_silent(rig: Rig) {
    let rig = rig.patient();
    let mut holder = rig.hold(&[]).await;
    for flags in [&[][..], &["-q"]] {
        let (code, words) = rig.run(&[flags, &["-w", "300ms"]].concat(), &["true"]).finish().await;
        assert_eq!((code, words.as_str()), (1, ""));
    }
    let quiet = ["-q", "--lease", "3s"];
    holder.close();
    assert_eq!(rig.run(&quiet, &["sleep", "60"]).finish().await, (79, String::new()));
}

async fn errors_do_nothing_to_the_terminal(rig: Rig) {
    let hostile = "no\x1b[2J\nsuch";
    let (code, words) = rig.run(&[], &[hostile]).finish().await;
    assert_eq!(code, 127, "{words}");
    assert!(words.contains(r"cannot run no\u{1b}[2J\nsuch: ") && !words.contains('\x1b'), "{words:?}");
    // What a server says is its own.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = rig.on(format!("redis://{}", listener.local_addr().unwrap()));
    let server = async {
        let mut clients = JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            clients.spawn(async move {
                let mut asked = Vec::new();
                while client.read_buf(&mut asked).await.is_ok_and(|length| length > 0) {
                    // Every command begins with a star.
                    let commands = asked.drain(..).filter(|byte| *byte == b'*').count();
                    let _ = client.write_all(&b"-NOPERM \x1b[31mred\x07\r\n".repeat(commands)).await;
                }
            });
        }
    };
    let (code, words) = tokio::select! {
        never = server => never,
        ended = rig.run(&[], &["true"]).finish() => ended,
    };
    assert_eq!(code, 77, "{words:?}");
    assert!(words.contains(r"\u{1b}[31mred\u{7}") && !words.contains('\x1b'), "{words:?}");
}

async fn ctrl_c_arrives_once(rig: Rig) {
    let script = "n=0; trap 'n=$((n + 1))' INT; echo ready; until read line || [ $n -gt 9 ]; do :; done; echo ints=$n.";
    let mut terminal = Terminal::start(&rig, &["--json", &rig.name, "sh", "-c", script]);
    terminal.shows("ready\r\n").await;
    terminal.press("\x03").await;
    terminal.shows(r#""forwarded":false"#).await;
    terminal.press("\n").await;
    terminal.shows("ints=1.").await;
    terminal.shows(r#""event":"released""#).await;
    assert_eq!(terminal.code().await, 0);

    let holder = rig.hold(&[]).await;
    let mut terminal = Terminal::start(&rig, &["--json", &rig.name, "true"]);
    terminal.shows(r#""event":"waiting""#).await;
    terminal.press("\x03").await;
    assert_eq!(terminal.code().await, 130);
    drop(holder);
}

async fn a_terminal_shows_what_is_waited_for(rig: Rig) {
    let mut holder = rig.hold(&["--fair", "--label", "the \x1b[2Jother"]).await;
    let mut terminal = Terminal::start(&rig, &["--fair", &rig.name, "echo", "mine"]);
    terminal.shows("number 1 of 1").await;
    let seen = terminal.shows("held by ").await;
    // Some seconds, usually none.
    let line = format!("s for {:?}, held by ", rig.name);
    assert!(seen.contains("\r\x1b[Kwaiting ") && seen.contains(&line), "{seen:?}");
    assert!(seen.contains("unless renewed"), "{seen:?}");
    assert!(!seen.contains("\x1b[2J"), "{seen:?}");
    holder.close();
    terminal.shows("\r\x1b[Kmine\r\n").await;
    assert_eq!(terminal.code().await, 0);
    assert_eq!(holder.code().await, 0);
}
