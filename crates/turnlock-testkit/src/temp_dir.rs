//! A temporary directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new directory for the files of one test, removed on drop.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates the directory.
    #[allow(clippy::new_without_default, reason = "it has a side effect")]
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Creates the directory in memory, if the system has a file system for that: `/dev/shm`.
    pub fn in_memory() -> Self {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() { Self::below(shared_memory) } else { Self::new() }
    }

    fn below(parent: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("turnlock-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = parent.join(name);
        // An earlier process with the same id may have been killed before it removed its directory.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory can be created");
        Self(dir)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
