//! Tests of what `./package` builds: each file is installed in a clean root, and the program is run there.
//!
//! The program is built with the profile `dev`, which is faster. The package is the one of a release otherwise.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[cfg(target_os = "linux")]
mod clean_root;
#[cfg(target_os = "linux")]
mod container_image;
#[cfg(target_os = "linux")]
mod debian_package;
#[cfg(target_os = "linux")]
mod packages;
#[cfg(target_os = "linux")]
mod static_program;

use libtest_mimic::Arguments;

#[cfg(target_os = "linux")]
fn trials() -> Vec<libtest_mimic::Trial> {
    let cases = [static_program::CASES, debian_package::CASES, container_image::CASES].concat();
    let trial = |(name, case): packages::Case| {
        turnlock_testkit::trial(name, packages::missing(), packages::LIMIT, move || async move {
            case(packages::Packages::built());
        })
    };
    cases.into_iter().map(trial).collect()
}

#[cfg(not(target_os = "linux"))]
fn trials() -> Vec<libtest_mimic::Trial> {
    Vec::new()
}

fn main() {
    turnlock_testkit::run(&Arguments::from_args(), trials()).exit();
}
