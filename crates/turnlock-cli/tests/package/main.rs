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
    let mut cases = [static_program::CASES, debian_package::CASES, container_image::CASES].concat();
    // More of the same, with tools that are large, or slow.
    cases.extend(packages::is_installed("skopeo").then_some(container_image::SKOPEO).into_iter().flatten());
    let is_debian = std::env::var_os("TURNLOCK_DEBOOTSTRAP").is_some();
    cases.extend(is_debian.then_some(debian_package::DEBOOTSTRAP).into_iter().flatten());
    let trial = |(name, tool, case): packages::Case| {
        turnlock_testkit::trial(name, packages::missing(tool), packages::LIMIT, move || async move {
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
