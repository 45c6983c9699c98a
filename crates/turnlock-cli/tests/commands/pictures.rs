//! The pictures of terminals in README.md, recorded from real runs: `docs/pictures/make` writes them.
//!
//! Without `TURNLOCK_PICTURES`, the directory to write to, the pictures of the project are compared with the recording: they
//! must show the same commands and holders. Times and ids differ.

use std::fmt::Write as _;
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

use anstyle::{Ansi256Color, Color, RgbColor, Style};
use anstyle_svg::{Palette, Term};
use libtest_mimic::Trial;
use tokio::process::Child;
use turnlock_testkit::eventually;

use crate::LIMIT;
use crate::fixture::Fixture;
use crate::program::Program;
use crate::store::Store;
use crate::terminal::Terminal;

const COLUMNS: u16 = 98;
const ROWS: u16 = 24;
const PROMPT: Style = Style::new().dimmed();

/// The holders: host, process id, and arguments of `run`.
const HOLDERS: &[(&str, u32, &[&str])] = &[
    ("db-1", 4242, &["--label", "backup.sh", "nightly-backup"]),
    ("web-1", 812, &["-s", "--label", "price import", "prices"]),
    ("web-2", 795, &["-s", "--label", "price import", "prices"]),
    ("ci-3", 2077, &["--fair", "--label", "pipeline 118", "deploy:production"]),
];
/// It waits for the lock of `ci-3`.
const WAITER: (&str, u32, &[&str]) =
    ("ci-7", 1950, &["--fair", "--label", "pipeline 119", "deploy:production"]);

/// A theme: its name, its colours, and those of text and background.
const THEMES: [(&str, [u32; 16], u32, u32); 2] = [
    (
        "light",
        [
            0x24_292f, 0xcf_222e, 0x11_6329, 0x9a_6700, 0x09_69da, 0x82_50df, 0x1b_7c83, 0x6e_7781,
            0x57_606a, 0xa4_0e26, 0x1a_7f37, 0x63_3c01, 0x21_8bff, 0xa4_75f9, 0x31_92aa, 0x8c_959f,
        ],
        0x1f_2328,
        0xf6_f8fa,
    ),
    (
        "dark",
        [
            0x48_4f58, 0xff_7b72, 0x3f_b950, 0xd2_9922, 0x58_a6ff, 0xbc_8cff, 0x39_c5cf, 0xb1_bac4,
            0x6e_7681, 0xff_a198, 0x56_d364, 0xe3_b341, 0x79_c0ff, 0xd2_a8ff, 0x56_d4dd, 0xff_ffff,
        ],
        0xe6_edf3,
        0x16_1b22,
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let missing = Store::Redis.missing().or_else(|| {
        let is_root = rustix::process::geteuid().is_root();
        (!is_root).then(|| "host names of their own need root".to_owned())
    });
    let title = "pictures::the_pictures_of_the_readme_show_what_the_program_prints";
    vec![turnlock_testkit::trial(title, missing, LIMIT, || async {
        the_pictures_of_the_readme_show_what_the_program_prints(Fixture::new(Store::Redis).await).await;
    })]
}

async fn the_pictures_of_the_readme_show_what_the_program_prints(fixture: Fixture) {
    let _machines = start_machines(&fixture).await;
    let hosts = HOLDERS.iter().map(|(host, pid, _)| format!("{host}:{pid}"));

    let mut run = Picture::default();
    run.add(&fixture, &["run", "-n", "nightly-backup", "--", "./backup.sh"]).await;
    run.add_wait(&fixture, &["run", "nightly-backup", "--", "./backup.sh"], "waiting 3s").await;
    run.check_or_write("run", &["held by db-1:4242 (backup.sh)".to_owned()]);

    let mut list = Picture::default();
    list.add(&fixture, &["ls"]).await;
    list.add(&fixture, &["show", "deploy:production"]).await;
    list.check_or_write("ls", &hosts.collect::<Vec<_>>());
}

/// Starts the holders and the waiter, each on a machine of its own, and waits until a list shows them.
async fn start_machines(fixture: &Fixture) -> Vec<Child> {
    let start = |(host, pid, arguments): &(&str, u32, &[&str])| {
        let arguments = [&["run"], *arguments, &["--", "sleep", "300"]].concat();
        Program::on_machine(host, *pid, &arguments).with_env("TURNLOCK_STORE", fixture.url()).start()
    };
    let mut machines: Vec<_> = HOLDERS.iter().map(start).collect();
    let lists = |text: String| async move { fixture.run(&["ls", "--wide"]).await.out.contains(&text) };
    for (host, pid, _) in HOLDERS {
        let holder = format!("{host}:{pid}");
        eventually(&holder, Duration::from_secs(30), || lists(holder.clone())).await;
    }
    machines.push(start(&WAITER));
    let waits = || async { fixture.run(&["show", WAITER.2[3]]).await.out.contains(WAITER.0) };
    eventually("a waiter", Duration::from_secs(30), waits).await;
    machines
}

/// What a terminal shows, as text with escape codes.
#[derive(Debug, Default)]
struct Picture {
    text: String,
    commands: Vec<String>,
}

impl Picture {
    /// Adds a command, and what it prints until its end.
    async fn add(&mut self, fixture: &Fixture, arguments: &[&str]) {
        let (code, text) = Terminal::start(fixture.program(arguments), COLUMNS).end().await;
        self.add_output(arguments, &text);
        if let Some(code @ 1..) = code {
            self.add_line("echo $?");
            let _ = writeln!(self.text, "{code}");
        }
    }

    /// Adds a command, and what the terminal shows when it has printed `text`.
    async fn add_wait(&mut self, fixture: &Fixture, arguments: &[&str], text: &str) {
        let terminal = Terminal::start(fixture.program(arguments), COLUMNS);
        terminal.shows(text).await;
        self.add_output(arguments, &terminal.text());
        terminal.signal("-TERM").await;
        terminal.end().await;
    }

    fn add_output(&mut self, arguments: &[&str], output: &str) {
        let command = format!("turnlock {}", arguments.join(" "));
        self.add_line(&command);
        self.commands.push(command);
        let [rows, columns] = [ROWS, COLUMNS].map(|size| NonZero::new(size).unwrap());
        let mut terminal = vt100::Parser::new(rows, columns, 0);
        terminal.process(output.as_bytes());
        let rows = (0..ROWS).map(|row| styled_row(terminal.screen(), row)).collect::<Vec<_>>().join("\n");
        if !rows.trim_end().is_empty() {
            let _ = writeln!(self.text, "{}", rows.trim_end());
        }
    }

    /// Adds a command line after the prompt of a shell.
    fn add_line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{PROMPT}${PROMPT:#} {line}");
    }

    /// Writes the picture if asked to; compares it with the one of the project otherwise. Both must show these texts.
    fn check_or_write(&self, name: &str, texts: &[String]) {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for (theme, colors, foreground, background) in THEMES {
            let file = format!("{name}-{theme}.svg");
            let new = self.render(colors, foreground, background);
            assert!(!new.contains(&format!("{host}:")), "{file} has the name of this machine");
            let shown = self.commands.iter().chain(texts);
            assert!(shown.clone().all(|text| visible(&new).contains(text)), "{texts:?}: {new}");
            if let Some(directory) = std::env::var_os("TURNLOCK_PICTURES") {
                std::fs::write(Path::new(&directory).join(&file), new).unwrap();
            } else {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(&file);
                let old = visible(&std::fs::read_to_string(path).unwrap());
                let lacking: Vec<_> = shown.filter(|text| !old.contains(text.as_str())).collect();
                assert!(lacking.is_empty(), "{file} does not show {lacking:?}: run docs/pictures/make");
            }
        }
    }

    fn render(&self, colors: [u32; 16], foreground: u32, background: u32) -> String {
        let term = Term::new()
            .palette(Palette(colors.map(rgb)))
            .fg_color(Color::Rgb(rgb(foreground)))
            .bg_color(Color::Rgb(rgb(background)))
            .min_width_px(usize::from(COLUMNS) * 42 / 5);
        let svg = term.render_svg(self.text.trim_end());
        // A picture that is wider than the page is scaled, not cut.
        let (width, height) = (between(&svg, "width=\"", "px"), between(&svg, "height=\"", "px"));
        svg.replacen("<svg ", &format!("<svg viewBox=\"0 0 {width} {height}\" "), 1)
    }
}

/// The text of a picture: without tags, with plain characters.
fn visible(svg: &str) -> String {
    let parts = svg.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text);
    parts.collect::<String>().replace("&quot;", "\"").replace("&gt;", ">").replace("&amp;", "&")
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let text = text.split_once(start).unwrap().1;
    text.split_once(end).unwrap().0
}

/// A row of the screen, with an escape code where the style changes.
fn styled_row(screen: &vt100::Screen, row: u16) -> String {
    let (mut text, mut current) = (String::new(), Style::new());
    for cell in (0..COLUMNS).filter_map(|column| screen.cell(row, column)) {
        if cell.is_wide_continuation() {
            continue;
        }
        let style = style(cell);
        if style != current {
            let _ = write!(text, "{current:#}{style}");
            current = style;
        }
        text.push_str(if cell.has_contents() { cell.contents() } else { " " });
    }
    let _ = write!(text, "{current:#}");
    text.trim_end().to_owned()
}

fn style(cell: &vt100::Cell) -> Style {
    let mut style = Style::new().fg_color(color(cell.fgcolor())).bg_color(color(cell.bgcolor()));
    for (is_set, effect) in [
        (cell.bold(), anstyle::Effects::BOLD),
        (cell.dim(), anstyle::Effects::DIMMED),
        (cell.underline(), anstyle::Effects::UNDERLINE),
        (cell.inverse(), anstyle::Effects::INVERT),
    ] {
        style = if is_set { style | effect } else { style };
    }
    style
}

fn color(color: vt100::Color) -> Option<Color> {
    match color {
        vt100::Color::Default => None,
        vt100::Color::Idx(index) => {
            let color = Ansi256Color(index);
            Some(color.into_ansi().map_or(Color::Ansi256(color), Color::Ansi))
        }
        vt100::Color::Rgb(red, green, blue) => Some(Color::Rgb(RgbColor(red, green, blue))),
    }
}

fn rgb(color: u32) -> RgbColor {
    let [_, red, green, blue] = color.to_be_bytes();
    RgbColor(red, green, blue)
}
