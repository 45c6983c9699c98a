//! Things that tests need built or installed, once for a machine: in `target/interop`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What a tool may have left in a folder of sources, when somebody ran it there by hand.
const NOT_SOURCES: &[&str] = &["target", "node_modules", "__pycache__"];

/// How to build a folder of `interop/`.
#[derive(Debug)]
pub(crate) struct Recipe<'a> {
    /// Names what comes out, which is a folder of that name.
    pub(crate) name: &'a str,
    /// The folder of the sources.
    pub(crate) folder: &'a str,
    /// Programs that are needed later, each with an argument by which it does nothing.
    pub(crate) tools: &'a [[&'a str; 2]],
    /// What builds it, in a copy of the sources.
    pub(crate) command: &'a [&'a str],
}

/// Builds what the recipe says, unless that was done before from the same sources, and gives the folder with the copy
/// of the sources and the result; or says why not. A failure is tried again by the next process only.
pub(crate) fn project(recipe: &Recipe<'_>) -> Result<PathBuf, String> {
    static OUTCOMES: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());
    let mut outcomes = OUTCOMES.lock().expect("no panic while building");
    if let Some(outcome) = outcomes.get(recipe.name) {
        return outcome.clone();
    }
    let outcome = build(recipe);
    outcomes.insert(recipe.name.to_owned(), outcome.clone());
    outcome
}

fn build(recipe: &Recipe<'_>) -> Result<PathBuf, String> {
    for [tool, harmless] in recipe.tools {
        run(Command::new(tool).arg(harmless))?;
    }
    let mut sources = BTreeMap::new();
    collect(&root().join("interop").join(recipe.folder), Path::new(""), &mut sources);
    // The stamp is everything that the result depends on; there is little of it.
    let mut stamp = recipe.command.join(" ").into_bytes();
    for (path, content) in &sources {
        stamp.extend(format!("\n{}\n", path.display()).bytes().chain(content.iter().copied()));
    }
    once(recipe.name, &stamp, |dir| {
        for (path, content) in &sources {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder can be made");
            fs::write(path, content).expect("a source can be copied");
        }
        run(Command::new(recipe.command[0]).args(&recipe.command[1..]).current_dir(dir))
    })
}

/// Makes a folder and lets `make` fill it, unless that was done before with the same `stamp`.
///
/// Of several processes that come at the same time one does the work, and the others wait for it.
pub(crate) fn once(
    name: &str,
    stamp: &[u8],
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let all = target().join("interop");
    fs::create_dir_all(&all).expect("a folder for what is built can be made");
    let _only_one = locked(&all.join(format!("{name}.lock")));
    let (dir, stamp_path) = (all.join(name), all.join(format!("{name}.stamp")));
    if fs::read(&stamp_path).is_ok_and(|found| found == stamp) {
        return Ok(dir);
    }
    // Neither need be there. The stamp goes first and comes last.
    let _ = fs::remove_file(&stamp_path);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder can be made");
    make(&dir)?;
    fs::write(&stamp_path, stamp).expect("a stamp can be written");
    Ok(dir)
}

/// Holds a lock file until the result is dropped, or the process ends in whatever way.
fn locked(path: &Path) -> File {
    let file = File::create(path).expect("a lock file can be made");
    // The standard library has this from Rust 1.89 on.
    #[cfg(unix)]
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("a file can be locked");
    file
}

/// Runs a command to its end, or says on one line what went wrong.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().display().to_string();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let telling = said.lines().find(|line| line.to_lowercase().contains("error"));
    let telling = telling.or(said.lines().last()).unwrap_or("it said nothing").trim();
    Err(format!("`{program}` failed ({}): {telling}", output.status))
}

/// Reads all files of a folder, by their paths in it.
fn collect(root: &Path, folder: &Path, sources: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder of sources can be read") {
        let entry = entry.expect("a folder of sources can be read");
        let path = folder.join(entry.file_name());
        if !entry.file_type().expect("a file has a type").is_dir() {
            sources.insert(path, fs::read(entry.path()).expect("a source can be read"));
        } else if !NOT_SOURCES.iter().any(|name| entry.file_name() == *name) {
            collect(root, &path, sources);
        }
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo builds: a relative place is meant from the root, where the scripts of this repository start it.
fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    // Programs that run elsewhere are given this path.
    std::path::absolute(root().join(target)).expect("a path can be made absolute")
}
