use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
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
    columns: u16,
    rows: u16,
    /// The mode before the program was started.
    mode: Termios,
}

impl Terminal {
    /// Starts the program with its standard streams on a terminal of this width.
    pub(crate) fn start(program: Program, columns: u16) -> Self {
        Self::start_sized(program, columns, 24)
    }

    /// Starts the program with its standard streams on a terminal of this size.
    pub(crate) fn start_sized(program: Program, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, size(columns, rows)).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(path).unwrap();
        let mode = tcgetattr(&slave).unwrap();
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
        Self { child, master, output, reader, columns, rows, mode }
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

    /// The screen as a person sees it.
    pub(crate) fn screen(&self) -> vt100::Screen {
        let [rows, columns] = [self.rows, self.columns].map(|size| NonZero::new(size).unwrap());
        let mut parser = vt100::Parser::new(rows, columns, 0);
        parser.process(&self.output.lock().unwrap());
        parser.screen().clone()
    }

    /// The lines of the screen.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.screen().rows(0, self.columns).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Waits until the screen is as described. Returns its lines.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.until_within(Duration::from_secs(20), what, is_so).await
    }

    /// Waits until a line of the screen contains this text. Returns the lines.
    pub(crate) async fn displays(&self, text: &str) -> Vec<String> {
        self.displays_within(Duration::from_secs(20), text).await
    }

    /// Waits for at most `limit` until a line of the screen contains this text. Returns the lines.
    pub(crate) async fn displays_within(&self, limit: Duration, text: &str) -> Vec<String> {
        let contains = |lines: &[String]| lines.iter().any(|line| line.contains(text));
        self.until_within(limit, &format!("the screen has {text:?}"), contains).await
    }

    async fn until_within(
        &self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        let wait = eventually(what, limit, || async { is_so(&self.lines()) });
        tokio::select! {
            () = wait => {}
            // Just before the limit, so that a failure has the screen on standard error.
            () = tokio::time::sleep(limit.saturating_sub(Duration::from_secs(1))) => {
                eprintln!("waiting until {what}: {:#?}", self.lines());
                eventually(what, Duration::from_secs(1), || async { is_so(&self.lines()) }).await;
            }
        }
        self.lines()
    }

    /// Changes the size of the terminal, and signals it to the program.
    pub(crate) async fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.master, size(columns, rows)).unwrap();
        (self.columns, self.rows) = (columns, rows);
        self.signal("-WINCH").await;
    }

    /// Returns `true` if the terminal is as it was before the program was started.
    pub(crate) fn is_restored(&self) -> bool {
        let mode =
            |mode: &Termios| (mode.input_modes, mode.output_modes, mode.control_modes, mode.local_modes);
        let screen = self.screen();
        mode(&tcgetattr(&self.master).unwrap()) == mode(&self.mode)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
            && !screen.bracketed_paste()
    }

    /// Sets the mode that the terminal had before the program was started, as a shell does.
    pub(crate) fn reset_mode(&self) {
        tcsetattr(&self.master, OptionalActions::Now, &self.mode).unwrap();
    }

    /// Returns `true` if the program reads single keys on the alternate screen.
    pub(crate) fn is_taken(&self) -> bool {
        let is_line_mode =
            tcgetattr(&self.master).unwrap().local_modes.contains(rustix::termios::LocalModes::ICANON);
        let screen = self.screen();
        !is_line_mode && screen.alternate_screen() && screen.bracketed_paste()
    }

    /// Waits for the end of the program on a terminal that must be restored. Returns its exit code.
    pub(crate) async fn end_restored(mut self) -> Option<i32> {
        let code =
            within(Duration::from_secs(60), "the program ends", self.child.wait()).await.unwrap().code();
        // The output is read on another thread.
        eventually("the terminal is restored", Duration::from_secs(20), || async { self.is_restored() })
            .await;
        code
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) async fn signal(&self, signal: &str) {
        program::signal(&self.child, signal).await;
    }

    /// Waits for the end of the program. Returns its exit code and its output.
    pub(crate) async fn end(self) -> (Option<i32>, String) {
        let Self { child, master: _master, output, reader, .. } = self;
        let code = program::code_of(child).await;
        let rest = tokio::task::spawn_blocking(move || reader.join());
        let rest = within(Duration::from_secs(20), "the output of the terminal ends", rest).await;
        assert!(rest.unwrap().is_ok());
        let text = String::from_utf8_lossy(&output.lock().unwrap()).into_owned();
        (code, text)
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
