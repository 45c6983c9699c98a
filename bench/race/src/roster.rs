use std::fs;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::arguments::Arguments;
use crate::entrant::{Entrant, KINDS};

/// The order of rows; whoever is not named follows.
const ORDER: [&str; 7] = ["floor", "turnlock", "redisson", "rslock", "redsync", "redis-py", "node-redlock"];
/// How much of a failed build is shown.
const SHOWN: usize = 300;

/// Who takes part, and who does not, with a word why.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) entrants: Vec<Entrant>,
    pub(crate) absent: Vec<(String, String)>,
}

impl Roster {
    /// Finds the participants, each a folder with a program `participant`, and builds those that are wanted.
    pub(crate) async fn gather(folder: &Path, arguments: &Arguments) -> Result<Self, String> {
        let found = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut names: Vec<String> = found
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| folder.join(name).join("participant").is_file())
            .collect();
        names.sort_by_key(|name| (rank(name), name.clone()));
        if let Some(unknown) = arguments.participants.iter().find(|wanted| !names.contains(wanted)) {
            return Err(format!("there is no participant {unknown}; there are: {}", names.join(", ")));
        }
        let mut roster = Self::default();
        for name in names.into_iter().filter(|name| arguments.wants_participant(name)) {
            let dir = folder.join(&name);
            if !arguments.no_build && dir.join("build").is_file() {
                eprintln!("building {name}");
                if let Err(trouble) = build(&dir).await {
                    eprintln!("{name} is left out: {trouble}");
                    roster.absent.push((name, trouble));
                    continue;
                }
            }
            roster.enter(&name, &dir);
        }
        Ok(roster)
    }

    fn enter(&mut self, name: &str, dir: &Path) {
        let usual = Entrant {
            participant: name.to_owned(),
            program: dir.join("participant"),
            kind: String::new(),
            works: &[],
        };
        self.entrants.push(usual.clone());
        for (_, kind, works) in KINDS.iter().filter(|(participant, ..)| *participant == name) {
            self.entrants.push(Entrant { kind: (*kind).to_owned(), works, ..usual.clone() });
        }
    }

    /// The entrant with this title.
    pub(crate) fn find(&self, title: &str) -> Option<&Entrant> {
        self.entrants.iter().find(|entrant| entrant.title() == title)
    }
}

fn rank(name: &str) -> usize {
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}

async fn build(dir: &Path) -> Result<(), String> {
    let mut command = Command::new(dir.join("build"));
    command.current_dir(dir).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(|error| format!("its build cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said =
        String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr })
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
    let end: String = said.chars().rev().take(SHOWN).collect::<Vec<_>>().into_iter().rev().collect();
    Err(format!("cannot be built here: {end}"))
}
