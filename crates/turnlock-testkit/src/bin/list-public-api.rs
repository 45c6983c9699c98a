//! Prints the public interface of a crate, one item per line, from its rustdoc JSON.
//!
//! A re-exported item of another crate is one line `pub use` there. The items of those crates follow, from their
//! own JSON, as far as they are re-exported. `./verify` compares the listing with the one in the repository, and
//! `./fix` writes that.

use std::collections::HashSet;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut listings = Vec::new();
    for path in std::env::args_os().skip(1) {
        // Without the implementations that every type has.
        let listing = public_api::Builder::from_rustdoc_json(path)
            .omit_auto_derived_impls(true)
            .omit_auto_trait_impls(true)
            .omit_blanket_impls(true)
            .build();
        match listing {
            Ok(listing) => listings.push(listing.to_string()),
            Err(error) => {
                eprintln!("list-public-api: the JSON of this rustdoc cannot be read: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let Some((own, others)) = listings.split_first() else {
        eprintln!("usage: list-public-api RUSTDOC_JSON [RUSTDOC_JSON_OF_A_REEXPORTED_CRATE ...]");
        return ExitCode::FAILURE;
    };
    let reexports: Vec<_> =
        own.lines().filter_map(|line| line.strip_prefix("pub use ")?.split("::").last()).collect();
    print!("{own}");
    // An item that its crate re-exports itself is listed there more than once.
    let mut printed = HashSet::new();
    for line in others.iter().flat_map(|other| other.lines()) {
        if reexports.iter().any(|name| is_about(line, name)) && printed.insert(line) {
            println!("{line}");
        }
    }
    ExitCode::SUCCESS
}

/// Returns `true` if a line describes the type `name`: the type itself, a part of it, or an implementation for it.
fn is_about(line: &str, name: &str) -> bool {
    let is_impl = line.starts_with("impl");
    let mut paths = line.split(['(', ' ', '<', '>', '&']).filter(|word| word.contains("::"));
    let path = if is_impl { paths.next_back() } else { paths.next() };
    path.is_some_and(|path| path.split("::").any(|part| part.trim_end_matches(':') == name))
}
