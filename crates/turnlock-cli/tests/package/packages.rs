use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Time limit of a case. The first one builds the program.
pub(crate) const LIMIT: Duration = Duration::from_secs(20 * 60);

/// A case: its name, a tool that it needs in addition or `""`, and its function.
pub(crate) type Case = (&'static str, &'static str, fn(&Packages));

/// Makes cases of `fn(&Packages)`.
macro_rules! cases {
    ($($case:ident $(needs $tool:literal)?),* $(,)?) => {
        &[$((stringify!($case), concat!($($tool)?), $case)),*]
    };
}
pub(crate) use cases;

/// The output of `./package`.
#[derive(Debug)]
pub(crate) struct Packages {
    pub(crate) program: PathBuf,
    pub(crate) debian: PathBuf,
    pub(crate) image: PathBuf,
    /// The digests that it printed.
    pub(crate) digests: String,
}

impl Packages {
    /// The packages, which are built once.
    pub(crate) fn built() -> &'static Self {
        static BUILT: OnceLock<Packages> = OnceLock::new();
        BUILT.get_or_init(|| Self::build("dist"))
    }

    /// Runs `./package` for a directory of this name. Cargo builds only what has changed.
    pub(crate) fn build(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../package");
        let digests = output(Command::new(script).args(["--profile", "dev", "--out"]).arg(&directory));
        let file = |end: &str| {
            let mut names = digests.lines().filter_map(|line| line.split_whitespace().nth(1));
            let name = names.find(|name| name.ends_with(end));
            directory.join(name.unwrap_or_else(|| panic!("no {end} in {digests}")))
        };
        Self { program: file("-linux"), debian: file(".deb"), image: file("-image.tar"), digests }
    }
}

/// Why a case that also needs `tool` cannot run here, if it cannot.
pub(crate) fn missing(tool: &str) -> Option<String> {
    if let Some(tool) = ["musl-gcc", "dpkg", "python3", tool].into_iter().find(|tool| !is_installed(tool)) {
        return Some(format!("{tool} is not installed"));
    }
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    if !Path::new(&sysroot).join("lib/rustlib").join(&target).exists() {
        return Some(format!("Rust has no target {target}"));
    }
    (!rustix::process::geteuid().is_root()).then(|| "chroot needs root".to_owned())
}

/// Whether a program can be started; `""` is none.
pub(crate) fn is_installed(tool: &str) -> bool {
    tool.is_empty() || Command::new(tool).arg("--version").output().is_ok()
}

/// Runs a command, which must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}
