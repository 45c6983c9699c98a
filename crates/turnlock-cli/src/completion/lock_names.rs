use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::CommandFactory;
use turnlock::Client;

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
    if store::is_memory(&store) || file_of(&store).is_some_and(|file| !file.exists()) {
        return Vec::new();
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let names = async {
        let client = store::connect(&store, Client::builder()).await.ok()?;
        let found = client.find(&pattern(prefix), MAX_NAMES).await.ok()?;
        Some(found.items.into_iter().map(|lock| lock.name).collect())
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

/// The file of a store in a file, as far as it is simple to tell.
fn file_of(store: &StoreArguments) -> Option<PathBuf> {
    let path = match store.store.as_deref().map(str::trim) {
        None => "",
        Some(url) => {
            let (scheme, rest) = url.split_once(':')?;
            if !scheme.eq_ignore_ascii_case("file") {
                return None;
            }
            let path = rest.split('?').next().unwrap_or_default();
            path.strip_prefix("//").map_or(path, |path| path.strip_prefix("localhost").unwrap_or(path))
        }
    };
    if !path.is_empty() {
        return Some(Path::new(path).to_owned());
    }
    let is_absolute = |path: &PathBuf| path.is_absolute();
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(is_absolute);
    let state = state.or_else(|| Some(std::env::home_dir()?.join(".local/state")))?;
    Some(state.join("turnlock").join("locks"))
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
    fn the_file_of_a_store_is_found() {
        let file = |url: &str| {
            let store = StoreArguments { store: Some(url.to_owned()), ..StoreArguments::default() };
            file_of(&store).map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(file("file:/a/b?x=y").as_deref(), Some("/a/b"));
        assert_eq!(file(" File:///a/b").as_deref(), Some("/a/b"));
        assert_eq!(file("file:a").as_deref(), Some("a"));
        assert_eq!(file("redis://a"), None);
        assert!(file("file:").is_none_or(|path| path.ends_with("/turnlock/locks")));
    }

    #[test]
    fn a_prefix_is_not_a_pattern() {
        assert_eq!(pattern(r"a*b?[c]\"), r"a\*b\?\[c\]\\*");
    }
}
