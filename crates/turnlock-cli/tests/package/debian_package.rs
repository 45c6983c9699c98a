//! The Debian package, installed by the real dpkg in a root that has only what its scripts need.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::clean_root::CleanRoot;
use crate::packages::{Case, Packages, cases, output};

pub(crate) const CASES: &[Case] = cases![
    an_installed_package_runs_a_command_under_a_lock,
    the_shared_directory_belongs_to_the_group_and_outlives_upgrade_and_removal,
    the_manual_page_has_no_error_and_every_command needs "groff",
    the_completions_of_bash_load,
    the_completions_of_zsh_load needs "zsh",
    the_completions_of_fish_load needs "fish",
];

/// The case on a whole system, which is downloaded: `TURNLOCK_DEBOOTSTRAP` is the name of a release of Debian.
pub(crate) const DEBOOTSTRAP: &[Case] =
    cases![the_package_installs_and_purges_on_a_new_debian_system needs "debootstrap"];

/// What the scripts of the package run.
const PROGRAMS: &[&str] = &[
    "/bin/sh",
    "/usr/bin/getent",
    "/usr/bin/install",
    "/bin/rm",
    "/usr/sbin/groupadd",
    "/usr/sbin/groupdel",
];

/// A root with a package data base, in which only `passwd` is installed.
fn root() -> CleanRoot {
    let root = CleanRoot::with_programs(PROGRAMS);
    for directory in ["updates", "info", "triggers"] {
        fs::create_dir_all(root.path("var/lib/dpkg").join(directory)).unwrap();
    }
    let passwd = "Package: passwd\nStatus: install ok installed\nMaintainer: -\nArchitecture: all\nVersion: 1\nDescription: -\n";
    fs::write(root.path("var/lib/dpkg/status"), passwd).unwrap();
    root
}

/// Runs dpkg on the root.
fn dpkg(root: &CleanRoot, action: &str, what: &Path) {
    let mut dpkg = Command::new("dpkg");
    // The root has no ldconfig and no start-stop-daemon, which dpkg looks for.
    dpkg.arg("--root").arg(root.path("")).args(["--force-bad-path", action]).arg(what);
    output(dpkg.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
}

fn installed(packages: &Packages) -> CleanRoot {
    let root = root();
    dpkg(&root, "--install", &packages.debian);
    root
}

/// The id of the group `turnlock` in the root.
fn group(root: &CleanRoot) -> Option<u32> {
    let groups = fs::read_to_string(root.path("etc/group")).unwrap();
    let line = groups.lines().find(|line| line.starts_with("turnlock:"))?;
    Some(line.split(':').nth(2).unwrap().parse().unwrap())
}

fn an_installed_package_runs_a_command_under_a_lock(packages: &Packages) {
    let root = installed(packages);
    let command = ["turnlock", "run", "hello", "--", "sh", "-c", "echo \"$TURNLOCK_NAME: my turn\""];
    let variables = [("HOME", "/root"), ("PATH", "/usr/bin:/bin")];
    assert_eq!(root.run("0:0", &variables, &command), "hello: my turn\n");
    assert!(root.path("root/.local/state/turnlock/locks").exists());
    let version = concat!("turnlock ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(root.run("0:0", &variables, &["turnlock", "--version"]), version);
}

fn the_shared_directory_belongs_to_the_group_and_outlives_upgrade_and_removal(packages: &Packages) {
    let root = installed(packages);
    let directory = root.path("var/lib/turnlock");
    let state = || {
        let metadata = fs::metadata(&directory).unwrap();
        (metadata.mode() & 0o7777, metadata.uid(), Some(metadata.gid()))
    };
    assert_eq!(state(), (0o2750, 0, group(&root)));

    // A member of the group locks there, and others have no access.
    let store = ["turnlock", "--system", "run", "hello", "--", "turnlock", "-V"];
    let variables = [("PATH", "/usr/bin")];
    root.run(&format!("4000:{}", group(&root).unwrap()), &variables, &store);
    let mut other = Command::new("/usr/sbin/chroot");
    let other = other.arg("--userspec=4001:4001").arg(root.path("")).args(store).output().unwrap();
    assert_eq!(other.status.code(), Some(77), "{other:?}");

    // What the administrator has set stays.
    output(Command::new("chmod").arg("2700").arg(&directory));
    dpkg(&root, "--install", &packages.debian);
    assert_eq!(state(), (0o2700, 0, group(&root)));
    dpkg(&root, "--remove", Path::new("turnlock"));
    assert!(directory.join("locks").exists() && !root.path("usr/bin/turnlock").exists());
    dpkg(&root, "--purge", Path::new("turnlock"));
    assert!(!directory.exists());
    assert_eq!(group(&root), None);
}

fn the_manual_page_has_no_error_and_every_command(packages: &Packages) {
    let root = installed(packages);
    let page = output(Command::new("gzip").arg("-dc").arg(root.path("usr/share/man/man1/turnlock.1.gz")));
    fs::write(root.path("page"), page).unwrap();
    let mut groff = Command::new("groff");
    let groff = groff.args(["-man", "-Tutf8", "-ww", "-P-cbou"]).arg(root.path("page")).output().unwrap();
    assert!(groff.status.success() && groff.stderr.is_empty(), "{}", String::from_utf8_lossy(&groff.stderr));
    let text = String::from_utf8(groff.stdout).unwrap();
    for command in ["RUN", "HOLD", "LS", "SHOW", "WATCH", "UNLOCK", "DOCTOR", "STATUS", "ACL", "BENCH"] {
        assert!(text.contains(&format!("TURNLOCK {command}")), "{command}: {text}");
    }
}

fn the_completions_of_bash_load(packages: &Packages) {
    let root = installed(packages);
    let file = root.path("usr/share/bash-completion/completions/turnlock");
    let script = format!(". {} && complete -p turnlock", file.display());
    let shown = output(Command::new("bash").args(["--norc", "-c", &script]));
    assert!(shown.ends_with(" turnlock\n"), "{shown}");
}

fn the_completions_of_zsh_load(packages: &Packages) {
    let root = installed(packages);
    let file = root.path("usr/share/zsh/vendor-completions/_turnlock");
    let directory = file.parent().unwrap().display();
    let script = format!("fpath=({directory}); autoload +X _turnlock && whence -w _turnlock");
    assert_eq!(output(Command::new("zsh").args(["-f", "-c", &script])), "_turnlock: function\n");
}

fn the_completions_of_fish_load(packages: &Packages) {
    let root = installed(packages);
    let file = root.path("usr/share/fish/vendor_completions.d/turnlock.fish");
    let script = format!("source {}; complete -C 'turnlock doc'", file.display());
    // The script asks the program.
    let path = format!("{}:/usr/bin:/bin", root.path("usr/bin").display());
    let shown = output(Command::new("fish").args(["--no-config", "-c", &script]).env("PATH", path));
    assert!(shown.starts_with("doctor\t"), "{shown}");
}

fn the_package_installs_and_purges_on_a_new_debian_system(packages: &Packages) {
    let root = CleanRoot::empty();
    let release = std::env::var("TURNLOCK_DEBOOTSTRAP").unwrap();
    output(Command::new("debootstrap").arg("--variant=minbase").arg(release).arg(root.path("")));
    root.add(&packages.debian, "turnlock.deb");
    let variables = [("HOME", "/root"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
    let run = |command: &[&str]| root.run("0:0", &variables, command);
    let stat = ["stat", "-c", "%A %U %G", "/var/lib/turnlock"];
    run(&["dpkg", "--install", "/turnlock.deb"]);
    assert_eq!(run(&stat), "drwxr-s--- root turnlock\n");
    assert_eq!(run(&["turnlock", "run", "hello", "--", "echo", "my turn"]), "my turn\n");
    run(&["dpkg", "--install", "/turnlock.deb"]);
    assert_eq!(run(&stat), "drwxr-s--- root turnlock\n");
    run(&["dpkg", "--purge", "turnlock"]);
    assert!(!root.path("var/lib/turnlock").exists());
    assert_eq!(group(&root), None);
}
