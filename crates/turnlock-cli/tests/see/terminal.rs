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

/// The program on a terminal of its own.
#[derive(Debug)]
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts it with all its input and output on a terminal that is so wide.
    pub(crate) fn start(program: Program, columns: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        tcsetwinsize(&keys, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let line = File::options().read(true).write(true).open(path).unwrap();
        let child =
            program.given(line.try_clone().unwrap()).printing_to(line.try_clone().unwrap(), line).start();
        let keys = File::from(keys);
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut screen, sink) = (keys.try_clone().unwrap(), Arc::clone(&seen));
        // Ends with an error when the last one on the other side is gone.
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(read @ 1..) = screen.read(&mut buffer) {
                let mut seen = sink.lock().unwrap();
                seen.extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, keys, seen, reader }
    }

    /// All that was printed.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until this was printed.
    pub(crate) async fn shows(&self, text: &str) {
        let what = format!("the terminal shows {text:?}");
        eventually(&what, Duration::from_secs(20), || async { self.text().contains(text) }).await;
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) async fn signal(&self, signal: &str) {
        program::signal(&self.child, signal).await;
    }

    /// Waits for the program's end, and gives its code and all that was printed.
    pub(crate) async fn end(self) -> (Option<i32>, String) {
        let Self { child, keys: _keys, seen, reader } = self;
        let code = program::code_of(child).await;
        let rest = tokio::task::spawn_blocking(move || reader.join());
        let rest = within(Duration::from_secs(20), "the terminal is read to its end", rest).await;
        assert!(rest.unwrap().is_ok());
        let text = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
        (code, text)
    }
}
