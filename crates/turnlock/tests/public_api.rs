//! The public interface of the library, compared with `public-api.txt`, so that a review shows each change of it.
//!
//! An item of another crate that the library re-exports is one line `pub use` there. The items of those crates follow, as far as
//! they are re-exported. With `TURNLOCK_WRITE_PUBLIC_API` set, the file is written instead: `./fix` does so.

#![cfg(feature = "metrics")]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The library, then the crates of which it re-exports items.
const CRATES: [&str; 4] = ["turnlock", "turnlock_core", "turnlock_store", "turnlock_redis"];

#[test]
fn the_public_interface_is_the_listed_one() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the directory of the build");
    // The whole workspace, and its examples, as for the lints: the same dependencies serve.
    let documented = Command::new(env!("CARGO"))
        .args([
            "doc",
            "--workspace",
            "--lib",
            "--examples",
            "--no-deps",
            "--locked",
            "--quiet",
            "--features",
            "turnlock/metrics",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(package)
        .env("RUSTDOC", package.join("../../.ci/rustdoc-unstable"))
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json")
        .status()
        .expect("cargo starts");
    assert!(documented.success(), "{documented}");
    let listing = listing_of(&CRATES.map(|name| items_of(&target.join(format!("doc/{name}.json")))));
    let file = package.join("public-api.txt");
    if std::env::var_os("TURNLOCK_WRITE_PUBLIC_API").is_some() {
        std::fs::write(file, listing).expect("written");
        return;
    }
    let expected = std::fs::read_to_string(file).expect("the file");
    let (expected, actual): (HashSet<_>, HashSet<_>) =
        (expected.lines().collect(), listing.lines().collect());
    let (gone, new): (Vec<_>, Vec<_>) =
        (expected.difference(&actual).collect(), actual.difference(&expected).collect());
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public interface differs from public-api.txt; ./fix writes it. Gone: {gone:#?}, new: {new:#?}"
    );
}

/// Returns the items of a crate, one per line, without the implementations that every type has.
fn items_of(json: &Path) -> String {
    let items = public_api::Builder::from_rustdoc_json(json)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build();
    items.unwrap_or_else(|error| panic!("the JSON of this rustdoc cannot be read: {error}")).to_string()
}

/// Returns the items of the first crate, and those that it re-exports of the others.
fn listing_of(crates: &[String; CRATES.len()]) -> String {
    let [own, others @ ..] = crates;
    let reexports: Vec<_> =
        own.lines().filter_map(|line| line.strip_prefix("pub use ")?.split("::").last()).collect();
    let mut listing = own.clone();
    // An item that its crate re-exports itself is listed there more than once.
    let mut listed = HashSet::new();
    for line in others.iter().flat_map(|other| other.lines()) {
        if reexports.iter().any(|name| is_about(line, name)) && listed.insert(line) {
            writeln!(listing, "{line}").expect("a string grows");
        }
    }
    listing
}

/// Returns `true` if a line describes the type `name`: the type itself, a part of it, or an implementation for it.
fn is_about(line: &str, name: &str) -> bool {
    let is_impl = line.starts_with("impl");
    let mut paths = line.split(['(', ' ', '<', '>', '&']).filter(|word| word.contains("::"));
    let path = if is_impl { paths.next_back() } else { paths.next() };
    path.is_some_and(|path| path.split("::").any(|part| part.trim_end_matches(':') == name))
}
