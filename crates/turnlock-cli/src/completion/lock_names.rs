use std::path::PathBuf;
use std::time::Duration;

use clap::CommandFactory;
use turnlock::{Client, Inspection};

use crate::arguments::{Arguments, StoreArguments};
use crate::store;

/// How long the shell waits for names.
const LIMIT: Duration = Duration::from_millis(300);
/// The most names that are offered.
const MAX_NAMES: usize = 500;

/// Returns the names of locks that begin with `prefix`. Returns none if the store does not reply in time, or fails.
///
/// `words` is the command line, which may name the store.
pub(super) fn matching(words: &[String], prefix: &str) -> Vec<String> {
    let store = store_of(words);
    // A file that does not exist has no locks, and must not be created by a completion.
    if store::is_memory(&store) || store::missing_file(&store).is_some() {
        return Vec::new();
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let names = async {
        let client = store::connect(&store, Client::builder()).await.ok()?;
        let found = client.find(&pattern(prefix), MAX_NAMES).await.ok()?;
        let held = found.items.into_iter().filter(Inspection::is_locked);
        Some(held.map(|lock| lock.name).collect())
    };
    let names: Option<Vec<String>> =
        runtime.block_on(async { tokio::time::timeout(LIMIT, names).await.ok().flatten() });
    // The name of a server may still be resolved, on a thread that cannot be cancelled.
    runtime.shutdown_background();
    names.unwrap_or_default().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

/// The store of an unfinished command line, or of the environment.
fn store_of(words: &[String]) -> StoreArguments {
    let command = Arguments::command().ignore_errors(true);
    let matches = command.try_get_matches_from(words).unwrap_or_default();
    let mut store = StoreArguments {
        store: matches.try_get_one("store").ok().flatten().cloned(),
        system: matches.try_get_one("system").ok().flatten().copied().unwrap_or_default(),
        password_file: matches.try_get_one::<PathBuf>("password_file").ok().flatten().cloned(),
    };
    // The command itself reports what is wrong.
    let _ = store::select_url(&mut store);
    store
}

/// The pattern of names that begin with this text.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for character in prefix.chars() {
        if "*?[]\\".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_of_an_unfinished_line_is_found() {
        for line in [
            "turnlock --store redis://a show",
            "turnlock show --store redis://a",
            "turnlock unlock --store=redis://a --force",
            "turnlock run --store redis://a -n",
            "turnlock watch --store redis://a --interval",
            "turnlock --store redis://a run --nonsense",
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(store_of(&words).store.as_deref(), Some("redis://a"), "{line}");
        }
    }

    #[test]
    fn a_prefix_is_not_a_pattern() {
        assert_eq!(pattern(r"a*b?[c]\"), r"a\*b\?\[c\]\\*");
    }
}
