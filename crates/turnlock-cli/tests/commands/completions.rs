//! Completions in bash, zsh and fish, by the shells themselves.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use turnlock::{Client, Guard};
use turnlock_testkit::TempDir;

use crate::fixture::Fixture;
use crate::program::{Ended, Program};
use crate::store::Store;
use crate::terminal::Terminal;
use crate::{Case, cases};

/// Cases for each shell, and for bash with bash-completion.
const SHELL_CASES: &[(&str, &[Case])] = &[
    (
        "bash",
        cases![
            bash_inserts_names_that_need_quotes,
            bash_completes_after_an_open_quote,
            bash_completes_commands_and_files_after_the_name,
            bash_completes_options_and_values
        ],
    ),
    ("bash-completion", cases![bash_uses_completions_of_other_commands]),
    ("zsh", cases![zsh_completes_names, zsh_completes_commands_and_options]),
    ("fish", cases![fish_completes_names, fish_completes_commands_and_options]),
];

/// Where Debian has bash-completion.
const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";

/// Cases for the call of a script.
pub(crate) const CASES: &[Case] = cases![
    names_of_the_store_are_offered,
    names_with_control_characters_are_not_offered,
    a_completion_creates_no_file,
];

/// Cases that need a server.
pub(crate) const REDIS_CASES: &[Case] = cases![a_store_that_does_not_reply_costs_little_time];

/// The trials of the shells, each ignored if the shell is missing.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (shell, cases) in SHELL_CASES {
        let is_missing = match *shell {
            "bash-completion" => !Path::new(BASH_COMPLETION).exists(),
            shell => Command::new(shell).arg("--version").stdout(Stdio::null()).status().is_err(),
        };
        let missing = is_missing.then(|| format!("{shell} is not installed"));
        trials.extend(cases.iter().map(|case| crate::trial_with(Store::File, *case, missing.clone())));
    }
    trials
}

/// The names that are locked in these cases.
const NAMES: [&str; 9] = [
    "orders:42",
    "orders:43",
    "a b",
    "it's",
    "say \"hi\"",
    "$(touch evil)",
    "`touch evil`;touch evil&",
    "~root",
    "注文",
];

async fn lock(client: &Client, names: &[&str]) -> Vec<Guard> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.lock(name).lock().await.unwrap());
    }
    guards
}

/// Runs a shell with the program in its path, in a directory of its own.
async fn run(fixture: &Fixture, shell: &str, arguments: &[&str], script: &str) -> Ended {
    let directory = TempDir::new();
    let program = in_directory(Program::of(shell, &[arguments, &[script]].concat()), fixture, &directory);
    let ended = program.run().await;
    assert!(!directory.path().join("evil").exists(), "a name was run: {ended:?}");
    ended
}

fn in_directory(program: Program, fixture: &Fixture, directory: &TempDir) -> Program {
    let bin = Path::new(env!("CARGO_BIN_EXE_turnlock")).parent().unwrap();
    let commands = directory.path().join("commands");
    std::fs::create_dir_all(&commands).unwrap();
    std::fs::copy("/bin/true", commands.join("hoist-cargo")).unwrap();
    let path = format!("{}:{}:{}", bin.display(), commands.display(), std::env::var("PATH").unwrap());
    std::fs::create_dir_all(directory.path().join("files")).unwrap();
    std::fs::write(directory.path().join("files/report.txt"), "").unwrap();
    program
        .in_directory(directory.path())
        .with_env("PATH", &path)
        .with_env("HOME", &directory.path().display().to_string())
        .with_env("LC_ALL", "C.UTF-8")
        .with_env("TURNLOCK_STORE", fixture.url())
}

/// Calls the program as a script does.
async fn reply(fixture: &Fixture, words: &[&str]) -> Vec<String> {
    let ended = fixture.run(&[&["__complete", "fish", "--", "turnlock"], words].concat()).await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    ended.out.lines().map(str::to_owned).collect()
}

/// Waits until these values are offered. On a busy machine, the store may not reply in time.
async fn offers(fixture: &Fixture, words: &[&str], expected: &[&str]) {
    let mut offered = Vec::new();
    for _ in 0..TRIES {
        offered = reply(fixture, words).await;
        if offered == expected {
            return;
        }
    }
    assert_eq!(offered, expected, "{words:?}");
}

async fn names_of_the_store_are_offered(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = lock(&client, &["orders:42", "orders:43", "prices", "or*x", "--json"]).await;
    for command in [&["run"][..], &["show"], &["watch"], &["unlock", "--force"]] {
        let names = async |prefix, expected: &[&str]| {
            offers(&fixture, &[command, &[prefix]].concat(), expected).await;
        };
        names("orders:", &["values", "orders:42", "orders:43"]).await;
        names("pr", &["values", "prices"]).await;
        names("or*", &["values", "or*x"]).await;
        names("x", &["values"]).await;
        names("", &["values", "or*x", "orders:42", "orders:43", "prices"]).await;
    }
    offers(&fixture, &["show", "--", "--"], &["values", "--json"]).await;
    assert_eq!(reply(&fixture, &["doctor", "pr"]).await, ["values"]);
    let other = ["show", "--store", "redis://127.0.0.1:1", "pr"];
    assert_eq!(reply(&fixture, &other).await, ["values"], "the store of the line counts");
    let call = ["__complete", "zsh", "--", "turnlock", "--store", fixture.url(), "show", "orders:42"];
    let mut out = String::new();
    for _ in 0..TRIES {
        out = Program::new(&call).run().await.out;
        if out != "values" {
            break;
        }
    }
    assert_eq!(out, "values\norders\\:42", "without the environment");
}

async fn names_with_control_characters_are_not_offered(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards =
        lock(&client, &["x\ny", "x\u{1b}[2J", "x\u{202e}evil", "x\tz", "x\u{7f}", "x\u{9b}", "xyz", "x\\"])
            .await;
    offers(&fixture, &["show", "x"], &["values", "x\\", "xyz"]).await;
}

async fn a_completion_creates_no_file(_: Fixture) {
    let directory = TempDir::new();
    let path = directory.path().join("typo");
    for url in [format!("file:{}", path.display()), "file:".to_owned()] {
        let home = directory.path().join("home");
        let program = Program::new(&["__complete", "fish", "--", "turnlock", "show", ""])
            .with_env("TURNLOCK_STORE", &url)
            .with_env("HOME", &home.display().to_string())
            .with_env("XDG_STATE_HOME", &home.display().to_string());
        let ended = program.run().await;
        assert_eq!(
            (ended.code, ended.out.as_str(), ended.err.as_str()),
            (Some(0), "values", ""),
            "{ended:?}"
        );
        assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none(), "{url}");
    }
}

async fn a_store_that_does_not_reply_costs_little_time(fixture: Fixture) {
    // Accepts connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?connect_timeout=1m", silent.local_addr().unwrap());
    let started = Instant::now();
    assert_eq!(reply(&fixture, &["--store", &url, "show", "a"]).await, ["values"]);
    assert!(started.elapsed() >= Duration::from_millis(250), "the store was asked");
    // Without a limit, a minute. The rest is the start of the program on a busy machine.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(reply(&fixture, &["--store", "teapot://", "show", "a"]).await, ["values"]);
}

/// An interactive bash with the completions, on a terminal.
async fn bash(fixture: &Fixture, directory: &TempDir, before: &str) -> Terminal {
    let arguments = ["--norc", "--noprofile", "-i"];
    let shell = in_directory(Program::of("bash", &arguments), fixture, directory);
    let mut terminal = Terminal::start_sized(shell.with_env("PS1", "ready$ ").in_own_group(), 100, 30);
    terminal.displays("ready$").await;
    let set_up = "bind 'set bell-style none'; eval \"$(turnlock completions bash)\"";
    terminal.type_in(&format!(
        "{before} {set_up}; show() {{ printf '<%s>' \"$@\"; echo; }}; clear; echo loaded\n"
    ));
    terminal.displays("loaded").await;
    terminal
}

/// How often a completion is tried. On a busy machine, the store may not reply in time.
const TRIES: usize = 10;

/// Types lines with tabs into a shell, and compares the words that result.
async fn type_lines(terminal: &mut Terminal, lines: &[(&str, &str)]) {
    for (number, (typed, expected)) in lines.iter().enumerate() {
        let mut shown = Vec::new();
        let mut is_so = false;
        for attempt in 0..TRIES {
            // Before the line is run, a command that shows its words is put at its beginning.
            let end = format!("<end-{number}-{attempt}>");
            terminal.type_in(&format!("{typed}\u{1}show \u{5} end-{number}-{attempt}\n"));
            shown = terminal.displays(&end).await;
            is_so = shown.contains(&format!("{expected}{end}"));
            if is_so {
                break;
            }
        }
        assert!(is_so, "{typed:?}: {expected}: {shown:#?}");
    }
}

async fn bash_inserts_names_that_need_quotes(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = lock(&client, &NAMES).await;
    let directory = TempDir::new();
    for before in [
        "",
        "[ -f /usr/share/bash-completion/bash_completion ] && . /usr/share/bash-completion/bash_completion;",
    ] {
        let mut terminal = bash(&fixture, &directory, before).await;
        let lines = [
            ("turnlock show ord\t2", "<turnlock><show><orders:42>"),
            ("turnlock show orders:\t3", "<turnlock><show><orders:43>"),
            ("turnlock show orders:42\t", "<turnlock><show><orders:42>"),
            ("turnlock run orders:43\tls", "<turnlock><run><orders:43><ls>"),
            ("turnlock unlock --force a\t", "<turnlock><unlock><--force><a b>"),
            ("turnlock watch it\t", "<turnlock><watch><it's>"),
            ("turnlock show say\t", "<turnlock><show><say \"hi\">"),
            ("turnlock show \\$\t", "<turnlock><show><$(touch evil)>"),
            ("turnlock show \\`\t", "<turnlock><show><`touch evil`;touch evil&>"),
            ("turnlock show \\~\t", "<turnlock><show><~root>"),
            ("turnlock show 注\t", "<turnlock><show><注文>"),
        ];
        type_lines(&mut terminal, &lines).await;
        assert!(!directory.path().join("evil").exists(), "a name was run");
    }
}

async fn bash_completes_after_an_open_quote(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = lock(&client, &NAMES).await;
    let directory = TempDir::new();
    let mut terminal = bash(&fixture, &directory, "").await;
    let lines = [
        ("turnlock show \"ord\t3\"", "<turnlock><show><orders:43>"),
        ("turnlock show 'orders:4\t3'", "<turnlock><show><orders:43>"),
        ("turnlock show \"a\t", "<turnlock><show><a b>"),
        ("turnlock show 'a\t", "<turnlock><show><a b>"),
        ("turnlock show \"\\$\t", "<turnlock><show><$(touch evil)>"),
        ("turnlock show '$\t", "<turnlock><show><$(touch evil)>"),
        ("turnlock show \"it\t", "<turnlock><show><it's>"),
    ];
    type_lines(&mut terminal, &lines).await;
    assert!(!directory.path().join("evil").exists(), "a name was run");
}

async fn bash_completes_commands_and_files_after_the_name(fixture: Fixture) {
    let directory = TempDir::new();
    let mut terminal = bash(&fixture, &directory, "").await;
    let lines = [
        ("turnlock run a -- hoist-\t", "<turnlock><run><a><--><hoist-cargo>"),
        ("turnlock run a -- cat fil\trep\t", "<turnlock><run><a><--><cat><files/report.txt>"),
        ("turnlock run orders:42 cat fil\trep\t", "<turnlock><run><orders:42><cat><files/report.txt>"),
        (
            "turnlock run -n --label x a -- cat fil\trep\t",
            "<turnlock><run><-n><--label><x><a><--><cat><files/report.txt>",
        ),
    ];
    type_lines(&mut terminal, &lines).await;
}

async fn bash_uses_completions_of_other_commands(fixture: Fixture) {
    let directory = TempDir::new();
    let other = format!(". {BASH_COMPLETION}; complete -W 'upwards downwards' lift;");
    let mut terminal = bash(&fixture, &directory, &other).await;
    let line = "turnlock run orders:42 -- lift down\t";
    type_lines(&mut terminal, &[(line, "<turnlock><run><orders:42><--><lift><downwards>")]).await;
}

async fn bash_completes_options_and_values(fixture: Fixture) {
    let directory = TempDir::new();
    let mut terminal = bash(&fixture, &directory, "").await;
    let lines = [
        ("turnlock comple\tba\t", "<turnlock><completions><bash>"),
        ("turnlock ls --ki\tfa\t", "<turnlock><ls><--kind><fair-lock>"),
        ("turnlock ls --sort=wa\t", "<turnlock><ls><--sort=waiters>"),
        ("turnlock run --on-lost w\t", "<turnlock><run><--on-lost><warn>"),
        ("turnlock --store redis+s\thost", "<turnlock><--store><redis+sentinel://host>"),
        ("turnlock --store file:fil\trep\t", "<turnlock><--store><file:files/report.txt>"),
    ];
    type_lines(&mut terminal, &lines).await;
}

/// What fish offers for a line.
async fn fish(fixture: &Fixture, line: &str) -> Vec<String> {
    let line = line.replace('\\', "\\\\").replace('\'', "\\'");
    let script = format!("turnlock completions fish | source; complete -C '{line}'");
    let ended = run(fixture, "fish", &["--no-config", "-c"], &script).await;
    assert_eq!(ended.err, "", "{line}");
    ended.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

async fn fish_completes_names(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = lock(&client, &NAMES).await;
    for (line, expected) in [
        ("turnlock show ord", &["orders:42", "orders:43"][..]),
        ("turnlock unlock --force orders:4", &["orders:42", "orders:43"]),
        ("turnlock watch a", &["a b"]),
        ("turnlock show a\\ ", &["a b"]),
        ("turnlock show \"a ", &["a b"]),
        ("turnlock show it", &["it's"]),
        ("turnlock show \\$", &["$(touch evil)"]),
        ("turnlock show 注", &["注文"]),
        ("turnlock run -n ord", &["orders:42", "orders:43"]),
    ] {
        let mut offered = Vec::new();
        for _ in 0..TRIES {
            offered = fish(&fixture, line).await;
            if !offered.is_empty() {
                break;
            }
        }
        offered.sort();
        assert_eq!(offered, expected, "{line}");
    }
}

async fn fish_completes_commands_and_options(fixture: Fixture) {
    for (line, expected) in [
        ("turnlock comple", "completions"),
        ("turnlock ls --kind fa", "fair-lock"),
        ("turnlock ls --sort=wa", "--sort=waiters"),
        ("turnlock run --on-lost w", "warn"),
        ("turnlock run a -- hoist-", "hoist-cargo"),
        ("turnlock run a hoist-", "hoist-cargo"),
        ("turnlock run a -- cat fil", "files/"),
        ("turnlock run -n --label 'x y' a -- cat files/rep", "files/report.txt"),
        ("turnlock --store redis+s", "redis+sentinel://"),
    ] {
        assert_eq!(fish(&fixture, line).await, [expected], "{line}");
    }
}

/// Types lines into an interactive zsh with the completions.
async fn zsh(fixture: &Fixture, lines: &[(&str, &str)]) {
    let directory = TempDir::new();
    let shell = in_directory(Program::of("zsh", &["-f", "-i"]), fixture, &directory);
    let mut terminal = Terminal::start_sized(shell.with_env("PS1", "ready$ ").in_own_group(), 100, 30);
    terminal.displays("ready$").await;
    let set_up = "unsetopt beep prompt_sp; bindkey -e; autoload -U compinit; compinit -D -u; \
                  eval \"$(turnlock completions zsh)\"; show() { printf '<%s>' \"$@\"; echo; }; clear; echo loaded\n";
    terminal.type_in(set_up);
    terminal.until("zsh has loaded the completions", |lines| lines[0] == "loaded").await;
    type_lines(&mut terminal, lines).await;
    assert!(!directory.path().join("evil").exists(), "a name was run");
}

async fn zsh_completes_names(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = lock(&client, &NAMES).await;
    let lines = [
        ("turnlock show ord\t2", "<turnlock><show><orders:42>"),
        ("turnlock show orders:4\t3", "<turnlock><show><orders:43>"),
        ("turnlock unlock --force a\t", "<turnlock><unlock><--force><a b>"),
        ("turnlock watch it\t", "<turnlock><watch><it's>"),
        ("turnlock show say\t", "<turnlock><show><say \"hi\">"),
        ("turnlock show \\$\t", "<turnlock><show><$(touch evil)>"),
        ("turnlock show \\`\t", "<turnlock><show><`touch evil`;touch evil&>"),
        ("turnlock show \\~\t", "<turnlock><show><~root>"),
        ("turnlock show 注\t", "<turnlock><show><注文>"),
        ("turnlock show \"a\t", "<turnlock><show><a b>"),
        ("turnlock show 'ord\t3'", "<turnlock><show><orders:43>"),
        ("turnlock run orders:43\tls", "<turnlock><run><orders:43><ls>"),
    ];
    zsh(&fixture, &lines).await;
}

async fn zsh_completes_commands_and_options(fixture: Fixture) {
    let lines = [
        ("turnlock comple\tba\t", "<turnlock><completions><bash>"),
        ("turnlock ls --ki\tfa\t", "<turnlock><ls><--kind><fair-lock>"),
        ("turnlock ls --sort=wa\t", "<turnlock><ls><--sort=waiters>"),
        ("turnlock run --on-lost w\t", "<turnlock><run><--on-lost><warn>"),
        ("turnlock --store redis+s\thost", "<turnlock><--store><redis+sentinel://host>"),
        ("turnlock run a -- hoist-\t", "<turnlock><run><a><--><hoist-cargo>"),
        ("turnlock run a -- cat fil\trep\t", "<turnlock><run><a><--><cat><files/report.txt>"),
        ("turnlock run -n a cat fil\trep\t", "<turnlock><run><-n><a><cat><files/report.txt>"),
    ];
    zsh(&fixture, &lines).await;
}
