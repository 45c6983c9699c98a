use std::fs::File;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::Child;
use turnlock_testkit::{eventually, within};

use crate::program::{self, Program};

/// The program on a pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    master: File,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts the program with its standard streams on a terminal of this width.
    pub(crate) fn start(program: Program, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(path).unwrap();
        let child = program
            .with_stdin(slave.try_clone().unwrap())
            .printing_to(slave.try_clone().unwrap(), slave)
            .start();
        let master = File::from(master);
        let output: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut source, sink) = (master.try_clone().unwrap(), Arc::clone(&output));
        // The read fails when the last process has closed the terminal.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(read @ 1..) = source.read(&mut buffer) {
                let mut output = sink.lock().unwrap();
                output.extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, master, output, reader }
    }

    /// The output so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the output contains this text.
    pub(crate) async fn shows(&self, text: &str) {
        let what = format!("the terminal shows {text:?}");
        eventually(&what, Duration::from_secs(20), || async { self.text().contains(text) }).await;
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) async fn signal(&self, signal: &str) {
        program::signal(&self.child, signal).await;
    }

    /// Waits for the end of the program. Returns its exit code and its output.
    pub(crate) async fn end(self) -> (Option<i32>, String) {
        let Self { child, master: _master, output, reader } = self;
        let code = program::code_of(child).await;
        let rest = tokio::task::spawn_blocking(move || reader.join());
        let rest = within(Duration::from_secs(20), "the output of the terminal ends", rest).await;
        assert!(rest.unwrap().is_ok());
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (code, text)
    }
}
