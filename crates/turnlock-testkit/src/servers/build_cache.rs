//! Programs and packages that tests need, built or installed once per machine in `target/interop`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Folders that a tool creates among the sources when it is run by hand.
const GENERATED: &[&str] = &["target", "node_modules", "__pycache__"];

/// How to build a folder of `interop/`.
#[derive(Debug)]
pub(crate) struct Recipe<'a> {
    /// The name of the resulting folder.
    pub(crate) name: &'a str,
    /// The folder of the sources.
    pub(crate) folder: &'a str,
    /// Programs that are needed later, each with an argument that has no effect.
    pub(crate) tools: &'a [[&'a str; 2]],
    /// The build command, which runs in a copy of the sources.
    pub(crate) command: &'a [&'a str],
}

/// Builds a project, unless it was built before from the same sources.
///
/// Returns the folder with the copy of the sources and the result, or the reason of the failure. Only another
/// process retries a failed build.
pub(crate) fn build_project(recipe: &Recipe<'_>) -> Result<PathBuf, String> {
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
    for [tool, no_op] in recipe.tools {
        run(Command::new(tool).arg(no_op))?;
    }
    let mut sources = BTreeMap::new();
    collect(&root().join("interop").join(recipe.folder), Path::new(""), &mut sources);
    // The stamp contains everything that the result depends on; that is not much.
    let mut stamp = recipe.command.join(" ").into_bytes();
    for (path, content) in &sources {
        stamp.extend(format!("\n{}\n", path.display()).bytes().chain(content.iter().copied()));
    }
    build_once(recipe.name, &stamp, |dir| {
        for (path, content) in &sources {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder can be created");
            fs::write(path, content).expect("a source can be copied");
        }
        run(Command::new(recipe.command[0]).args(&recipe.command[1..]).current_dir(dir))
    })
}

/// Creates a folder with `build`, unless it exists with the same `stamp`.
///
/// Of several concurrent processes, one builds and the others wait for it.
pub(crate) fn build_once(
    name: &str,
    stamp: &[u8],
    build: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let all = target().join("interop");
    fs::create_dir_all(&all).expect("the folder for builds can be created");
    let _lock = lock_file(&all.join(format!("{name}.lock")));
    let (dir, stamp_path) = (all.join(name), all.join(format!("{name}.stamp")));
    if fs::read(&stamp_path).is_ok_and(|found| found == stamp) {
        return Ok(dir);
    }
    // Neither may exist. The stamp is removed first and written last.
    let _ = fs::remove_file(&stamp_path);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder can be created");
    build(&dir)?;
    fs::write(&stamp_path, stamp).expect("a stamp can be written");
    Ok(dir)
}

/// Locks a file until the result is dropped or the process ends.
fn lock_file(path: &Path) -> File {
    let file = File::create(path).expect("a lock file can be created");
    // The standard library has this since Rust 1.89.
    #[cfg(unix)]
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("a file can be locked");
    file
}

/// Runs a command and waits for it. An error is one line.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().display().to_string();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let reason = text.lines().find(|line| line.to_lowercase().contains("error"));
    let reason = reason.or(text.lines().last()).unwrap_or("no output").trim();
    Err(format!("`{program}` failed ({}): {reason}", output.status))
}

/// Reads all files of a folder, keyed by their relative paths.
fn collect(root: &Path, folder: &Path, sources: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder of sources can be read") {
        let entry = entry.expect("a folder of sources can be read");
        let path = folder.join(entry.file_name());
        if !entry.file_type().expect("a file has a type").is_dir() {
            sources.insert(path, fs::read(entry.path()).expect("a source can be read"));
        } else if !GENERATED.iter().any(|name| entry.file_name() == *name) {
            collect(root, &path, sources);
        }
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The target directory of cargo. A relative path is relative to the root, where the scripts run cargo.
fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    // Absolute, since programs with other working directories get this path.
    std::path::absolute(root().join(target)).expect("a path can be made absolute")
}
