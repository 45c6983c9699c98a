//! Prints the public interface of a crate, one item per line, from its rustdoc JSON.
//!
//! `./verify` compares it with the listing in the repository, and `./fix` writes that.

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: list-public-api RUSTDOC_JSON");
        return ExitCode::FAILURE;
    };
    // Without the implementations that every type has.
    let listing = public_api::Builder::from_rustdoc_json(path)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build();
    match listing {
        Ok(listing) => match write!(io::stdout(), "{listing}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        Err(error) => fail(&format!("the JSON of this rustdoc cannot be read: {error}")),
    }
}

fn fail(text: &str) -> ExitCode {
    eprintln!("list-public-api: {text}");
    ExitCode::FAILURE
}
