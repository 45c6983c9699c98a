//! Keeps virtual cores from halting: waking one up takes longer than what is measured.

use std::hint;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The longest that a process spins, whatever becomes of its parent.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// One process for each core, which runs only when nobody else wants to.
#[derive(Debug, Default)]
pub(crate) struct Spinners(Vec<Child>);

impl Spinners {
    pub(crate) fn start() -> Self {
        let mut spinners = Self::default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let Ok(program) = std::env::current_exe() else { return spinners };
        for _ in 0..cores {
            let mut command = Command::new("chrt");
            command.args(["-i", "0"]).arg(&program).args(["spin", &std::process::id().to_string()]);
            match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
                Ok(child) => spinners.0.push(child),
                Err(error) => {
                    eprintln!("cores may sleep when nobody works: chrt cannot be run: {error}");
                    break;
                }
            }
        }
        spinners
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(Child::id)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What such a process does.
pub(crate) fn spin(parent: u32) -> ExitCode {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT && std::os::unix::process::parent_id() == parent {
        for _ in 0..1_000_000 {
            hint::spin_loop();
        }
    }
    ExitCode::SUCCESS
}
