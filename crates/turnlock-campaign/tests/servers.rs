//! A short campaign on real servers of each shape. Each is a libtest-mimic trial.
//!
//! A trial whose tools are missing is ignored, with the reason in its name. With `CI` set it fails instead.

use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use tokio::process::Command;
use turnlock_testkit::{NetworkNamespace, RedisServer, ServerProgram, TempDir};

const CAMPAIGN: &str = env!("CARGO_BIN_EXE_campaign");

/// The time limit of a trial, on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);

/// How often servers may not recover. Such a campaign shows nothing.
const ATTEMPTS: u32 = 3;

/// How long faults are injected: long enough for a quiet time.
const MINUTES: &str = "0.2";

/// What a busy machine acquires in that time, at least.
const ACQUIRED: usize = 60;

fn main() {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(6);
    let server = RedisServer::missing();
    // The longest ones first.
    let trials = vec![
        planted("WaitElsewhere", ServerProgram::Valkey9.missing()),
        campaign("sentinel", server.clone()),
        campaign("cluster", server.clone()),
        planted("StaysOnReplica", server.clone()),
        campaign("single", server.clone()),
        campaign("quorum", server.clone()),
        link_down(server.or_else(NetworkNamespace::missing)),
        campaign("file", None),
        planted("PresenceIgnored", None),
    ];
    turnlock_testkit::run(&arguments, trials).exit();
}

/// Returns the trial of a shape: no rule is broken, and locks are acquired.
fn campaign(shape: &'static str, missing: Option<String>) -> Trial {
    let title = format!("a_short_campaign_breaks_no_rule::{shape}");
    turnlock_testkit::trial(&title, missing, LIMIT, move || async move {
        let (mut is_success, mut text) = run(shape).await;
        for _ in 1..ATTEMPTS {
            // It is about the servers, and not about locks: the rules that do not need the end of the run are checked.
            if text.contains("the deployment does not recover") {
                println!("void: {shape}: {text}");
                assert!(!text.contains("VIOLATION"), "{shape}: {text}");
                (is_success, text) = run(shape).await;
            }
        }
        println!("{shape}: {text}");
        assert!(is_success, "{shape}: {text}");
        let acquired = text.lines().find_map(|line| line.split_once(" acquired, ")?.0.parse::<usize>().ok());
        assert!(acquired.is_some_and(|acquired| acquired >= ACQUIRED), "{shape}: {text}");
    })
}

/// Returns the trial of clients whose packets are lost: nothing else lets a request fail, or a lock get lost.
fn link_down(missing: Option<String>) -> Trial {
    let title = "clients_without_a_link_lose_their_locks";
    turnlock_testkit::trial(title, missing, LIMIT, || async {
        let out = TempDir::new();
        let mut command = Command::new(CAMPAIGN);
        command.args([
            "run",
            "--only",
            "link_down",
            "--minutes",
            "0.3",
            "--pause",
            "400",
            "--long-holds",
            "30",
        ]);
        let (is_success, text) = output_of(command.arg("--out").arg(out.path())).await;
        assert!(is_success && text.contains("faults: link_down "), "{text}");
        let numbers = |word: &str| text.split(word).next().and_then(|text| text.rsplit(' ').next());
        let number = |word: &str| numbers(word).and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
        assert!(number(" lost,") + number(" failed,") > 0, "{text}");
    })
}

/// Returns the trial of a bug that only real servers or files show.
fn planted(bug: &'static str, missing: Option<String>) -> Trial {
    let title = format!("a_bug_of_a_store_is_found::{bug}");
    turnlock_testkit::trial(&title, missing, LIMIT, move || async move {
        let (is_found, text) = output_of(Command::new(CAMPAIGN).args(["planted", bug])).await;
        assert!(is_found, "{text}");
    })
}

/// Runs a campaign. Returns whether it succeeded, and its output.
async fn run(shape: &str) -> (bool, String) {
    let out = TempDir::new();
    let mut command = Command::new(CAMPAIGN);
    command.args(["run", "--shape", shape, "--minutes", MINUTES, "--pause", "1500", "--out"]).arg(out.path());
    output_of(&mut command).await
}

/// Returns whether a command succeeded, and its output.
async fn output_of(command: &mut Command) -> (bool, String) {
    let output = command.kill_on_drop(true).output().await.expect("the campaign can be run");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}
