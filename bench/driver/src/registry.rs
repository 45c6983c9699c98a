use std::fs;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::arguments::Selection;
use crate::variant::Variant;

/// The order of rows; other participants follow.
const ORDER: [&str; 7] = ["bare", "turnlock", "redisson", "rslock", "redsync", "redis-py", "node-redlock"];
/// The number of characters of a failed build's output that are shown.
const OUTPUT_LIMIT: usize = 300;

/// The variants to measure, and the participants that are left out, with the reason.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) variants: Vec<Variant>,
    pub(crate) absent: Vec<(String, String)>,
    /// The version of each participant, as its program `version` prints it.
    pub(crate) versions: Vec<(String, String)>,
}

impl Registry {
    /// Finds the participants, each a directory with a program `participant`, and builds the selected ones.
    pub(crate) async fn discover(dir: &Path, selection: &Selection, builds: bool) -> Result<Self, String> {
        let found = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut names: Vec<String> = found
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| dir.join(name).join("participant").is_file())
            .collect();
        names.sort_by_key(|name| (rank(name), name.clone()));
        if let Some(unknown) = selection.participants.iter().find(|wanted| !names.contains(wanted)) {
            return Err(format!("unknown participant {unknown}; known: {}", names.join(", ")));
        }
        let mut registry = Self::default();
        for name in names.into_iter().filter(|name| selection.wants_participant(name)) {
            let home = dir.join(&name);
            if builds && home.join("build").is_file() {
                eprintln!("building {name}");
                if let Err(error) = build(&home).await {
                    eprintln!("{name} is left out: {error}");
                    registry.absent.push((name, error));
                    continue;
                }
            }
            let version = Command::new(home.join("version")).current_dir(&home).output().await;
            if let Some(version) = version.ok().filter(|output| output.status.success()) {
                let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
                registry.versions.push((name.clone(), version));
            }
            registry.variants.extend(Variant::all(&name, &home.join("participant")));
        }
        Ok(registry)
    }

    /// The variant with this title.
    pub(crate) fn find(&self, title: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.title() == title)
    }
}

fn rank(name: &str) -> usize {
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}

async fn build(dir: &Path) -> Result<(), String> {
    let mut command = Command::new(dir.join("build"));
    command.current_dir(dir).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(|error| format!("its build cannot be executed: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr })
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
    let end: String = text.chars().rev().take(OUTPUT_LIMIT).collect::<Vec<_>>().into_iter().rev().collect();
    Err(format!("cannot be built here: {end}"))
}
