//! The program as one file.

use crate::clean_root::CleanRoot;
use crate::packages::{Case, Packages, cases};

pub(crate) const CASES: &[Case] =
    cases![the_static_program_runs_in_an_empty_root, a_second_build_gives_the_same_files];

fn the_static_program_runs_in_an_empty_root(packages: &Packages) {
    let root = CleanRoot::empty();
    root.add(&packages.program, "turnlock");
    let command = ["/turnlock", "--store", "file:/locks", "run", "hello", "--", "/turnlock", "--version"];
    let version = concat!("turnlock ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(root.run("0:0", &[], &command), version);
    assert!(root.path("locks").exists());
}

fn a_second_build_gives_the_same_files(packages: &Packages) {
    assert_eq!(Packages::build("dist-again").digests, packages.digests);
}
