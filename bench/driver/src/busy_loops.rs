//! Keeps virtual cores from halting: waking up a core takes longer than what is measured.

use std::hint;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The longest time that a busy loop runs.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// One process for each core, with the scheduling class `SCHED_IDLE`.
#[derive(Debug, Default)]
pub(crate) struct BusyLoops(Vec<Child>);

impl BusyLoops {
    pub(crate) fn start() -> Self {
        let mut busy_loops = Self::default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let Ok(program) = std::env::current_exe() else { return busy_loops };
        for _ in 0..cores {
            let mut command = Command::new("chrt");
            command.args(["-i", "0"]).arg(&program).args(["busy-loop", &std::process::id().to_string()]);
            match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
                Ok(child) => busy_loops.0.push(child),
                Err(error) => {
                    eprintln!("idle cores may sleep: chrt cannot be executed: {error}");
                    break;
                }
            }
        }
        busy_loops
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(Child::id)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The main function of such a process.
pub(crate) fn run(parent: u32) -> ExitCode {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT && std::os::unix::process::parent_id() == parent {
        for _ in 0..1_000_000 {
            hint::spin_loop();
        }
    }
    ExitCode::SUCCESS
}
