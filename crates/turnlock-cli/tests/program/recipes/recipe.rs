//! A recipe of `docs/recipes.md`: its code blocks, on the store of a case.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use turnlock_testkit::RedisServer;
use yaml_rust2::{Yaml, YamlLoader};

use crate::fixture::Fixture;
use crate::program::Program;

const PAGE: &str = include_str!("../../../../../docs/recipes.md");

/// The recipe under one heading.
pub(super) struct Recipe {
    pub(super) fixture: Fixture,
    /// The code blocks: their language and text.
    blocks: Vec<(&'static str, &'static str)>,
    /// The names of locks are those of the page, so each case has a server of its own.
    _server: Option<RedisServer>,
}

/// The headings of the recipes.
pub(super) fn headings() -> Vec<&'static str> {
    PAGE.lines().filter_map(|line| line.strip_prefix("## ")).collect()
}

impl Recipe {
    pub(super) async fn new(fixture: Fixture, heading: &str) -> Self {
        let section = PAGE.split("\n## ").find(|section| section.starts_with(heading));
        let section = section.unwrap_or_else(|| panic!("no recipe {heading:?}"));
        let fenced = section.split("```").skip(1).step_by(2);
        let blocks = fenced.map(|block| block.split_once('\n').expect("a language")).collect();
        if !fixture.url.starts_with("redis:") {
            return Self { fixture, blocks, _server: None };
        }
        let server = RedisServer::start().await;
        let fixture = fixture.on(server.url()).with_long_connect_timeout();
        Self { fixture, blocks, _server: Some(server) }
    }

    /// The only code block in this language, or the one that contains `text`.
    ///
    /// With the store, the directory of the application and the program of this case.
    pub(super) fn block(&self, language: &str, text: &str) -> String {
        let matching = |(of, block): &&(&str, &str)| *of == language && block.contains(text);
        let found: Vec<_> = self.blocks.iter().filter(matching).collect();
        let [(_, block)] = &found[..] else { panic!("{} blocks in {language} with {text:?}", found.len()) };
        let directory = self.file("");
        block
            .replace("redis://locks.internal", &self.fixture.url)
            .replace("/opt/app/", directory.to_str().expect("text"))
            .replace("/usr/bin/turnlock", env!("CARGO_BIN_EXE_turnlock"))
    }

    /// A code block of YAML, parsed.
    pub(super) fn yaml(&self, text: &str) -> Yaml {
        let block = self.block("yaml", text);
        let mut documents =
            YamlLoader::load_from_str(&block).unwrap_or_else(|error| panic!("{error}: {block}"));
        assert_eq!(documents.len(), 1);
        documents.remove(0)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.fixture.file(name)
    }

    /// The lines of a file that a stand-in wrote.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Creates a program that stands in for one of the recipe. It runs in the directory of the case.
    ///
    /// It writes a line with `$WHO` to `ran`, and writes `overlaps` if another stand-in runs at the same time.
    pub(super) fn stand_in(&self, name: &str, script: &str) {
        let text = format!(
            "#!/bin/sh\ncd '{}'\nmkdir busy 2>/dev/null || echo $WHO >>overlaps\necho $WHO >>ran\n(\n{script}\n)\ncode=$?\nrmdir \
             busy\nexit $code\n",
            self.file("").display()
        );
        self.program(name, &text);
    }

    /// Creates an executable file.
    pub(super) fn program(&self, name: &str, text: &str) {
        // Written elsewhere first: a file that is open for writing cannot be executed.
        let temporary = self.file("program.new");
        std::fs::write(&temporary, text).unwrap();
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(temporary, self.file(name)).unwrap();
    }

    /// Starts a command line by a shell, as `WHO`. Programs of the case are in its path.
    ///
    /// The store is not in its environment, unless `variables` has it.
    pub(super) fn shell(&self, shell: &str, script: &str, variables: &[(&str, &str)], who: usize) -> Program {
        self.start(self.fixture.shell(shell, script), variables, who)
    }

    /// Starts a program with these arguments, as [`Self::shell`].
    pub(super) fn argv(&self, argv: &[String], variables: &[(&str, &str)], who: usize) -> Program {
        let mut command = self.fixture.shell("sh", "exec \"$@\"");
        command.arg("sh").args(argv);
        self.start(command, variables, who)
    }

    fn start(&self, mut command: tokio::process::Command, variables: &[(&str, &str)], who: usize) -> Program {
        let envs = command.as_std().get_envs();
        let path = envs.filter(|(name, _)| *name == "PATH").find_map(|(_, value)| value?.to_str());
        let path = format!("{}:{}", self.file("").display(), path.expect("a path"));
        command.env("PATH", path).env_remove("TURNLOCK_STORE").env("WHO", who.to_string());
        command.envs(variables.iter().copied());
        Program::start(command)
    }
}

/// The texts of a YAML list.
pub(super) fn texts(list: &Yaml) -> Vec<String> {
    let list = list.as_vec().unwrap_or_else(|| panic!("not a list: {list:?}"));
    list.iter().map(|item| item.as_str().expect("text").to_owned()).collect()
}

/// The `env` of a container.
pub(super) fn env_of(container: &Yaml) -> Vec<(&str, &str)> {
    let list = container["env"].as_vec().expect("a list");
    list.iter().map(|item| (item["name"].as_str().unwrap(), item["value"].as_str().unwrap())).collect()
}

/// The value of a setting of a systemd unit.
pub(super) fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {unit}"))
}

/// The words of `ExecStart`, which has no quotes.
pub(super) fn exec_start(unit: &str) -> Vec<String> {
    setting(unit, "ExecStart").split(' ').map(str::to_owned).collect()
}
