//! Compares `turnlock run` on a file with flock(1): the time of a run, and of a hand-over between two runs.
//!
//! `cargo bench -p turnlock-cli` runs it. The rounds of both programs alternate, so that other work on the machine
//! affects both. Compare figures of one output only.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Rounds of each program in each part.
const ROUNDS: usize = 50;

/// Rounds before the first one that counts.
const WARM_UP: usize = 3;

/// How long a waiter has to start to wait.
const UNTIL_WAITING: Duration = Duration::from_millis(100);

/// How a program runs a command under a lock.
type UnderLock<'a> = &'a dyn Fn(&[&str]) -> Command;

fn main() {
    let directory = std::env::temp_dir().join(format!("turnlock-start-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a new directory");
    let has_flock = Command::new("flock").arg("--version").stdout(Stdio::null()).status().is_ok();
    if has_flock {
        compare(&directory);
    }
    std::fs::remove_dir_all(&directory).expect("the directory can be removed");
    if !has_flock {
        eprintln!("flock is not installed");
        exit(1);
    }
}

fn compare(directory: &Path) {
    let flock = |command: &[&str]| {
        let mut flock = Command::new("flock");
        flock.arg(directory.join("flock")).args(command);
        flock
    };
    let turnlock = |command: &[&str]| {
        let mut turnlock = Command::new(env!("CARGO_BIN_EXE_turnlock"));
        turnlock.env("TURNLOCK_STORE", format!("file:{}", directory.join("locks").display()));
        turnlock.args(["run", "start", "--"]).args(command);
        turnlock
    };
    println!("{:32} {:>9} {:>9} {:>9} {:>9}", "median (90th percentile), ms", "flock", "", "turnlock", "");
    alternate("a run of true, from start to exit", &flock, &turnlock, run);
    alternate("hand-over to a waiting run", &flock, &turnlock, hand_over);
}

/// Measures both programs in turns, and prints a line.
fn alternate(
    what: &str,
    first: UnderLock<'_>,
    second: UnderLock<'_>,
    measure: fn(UnderLock<'_>) -> Duration,
) {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..WARM_UP + ROUNDS {
        for (times, program) in times.iter_mut().zip([first, second]) {
            let time = measure(program);
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [(first, first_90), (second, second_90)] = times.map(|mut times| {
        times.sort();
        let millis = |index: usize| times[index].as_secs_f64() * 1_000.0;
        (millis(ROUNDS / 2), millis(ROUNDS * 9 / 10))
    });
    println!(
        "{what:34} {first:7.2} ({first_90:6.2}) {second:8.2} ({second_90:6.2}); difference of the medians {:.2}",
        second - first
    );
}

/// The time of one run, from the start of the program to its exit.
fn run(program: UnderLock<'_>) -> Duration {
    let begin = Instant::now();
    let status = program(&["true"]).status().expect("the program starts");
    assert!(status.success(), "{status}");
    begin.elapsed()
}

/// The time from the end of one command to the first output of the next, whose program waits for the lock.
///
/// It contains the exit of the first command and the start of the second, `cat` and `echo`.
fn hand_over(program: UnderLock<'_>) -> Duration {
    let mut holder = program(&["cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut input = holder.stdin.take().expect("piped");
    input.write_all(b"x").expect("a reader");
    let mut byte = [0];
    holder.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("the command runs");
    let mut waiter = program(&["echo"]).stdout(Stdio::piped()).spawn().expect("starts");
    sleep(UNTIL_WAITING);
    let begin = Instant::now();
    drop(input);
    waiter.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("the command runs");
    let time = begin.elapsed();
    for mut program in [holder, waiter] {
        let status = program.wait().expect("exits");
        assert!(status.success(), "{status}");
    }
    time
}
