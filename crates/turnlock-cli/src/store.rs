use turnlock::{Builder, Client, Error};

use crate::arguments::StoreArguments;

/// Environment variable with the URL of the store.
const STORE_VARIABLE: &str = "TURNLOCK_STORE";
/// Environment variable with the password of the store.
const PASSWORD_VARIABLE: &str = "TURNLOCK_PASSWORD";

/// Connects to the store that the command line names.
pub(crate) async fn connect(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    let builder = match &arguments.password_file {
        Some(path) => builder.password_from_file(path),
        // A command under a lock inherits the variable, and may use a store that takes no password.
        // An empty variable is one that a CI system has no value for.
        None if std::env::var_os(PASSWORD_VARIABLE).is_some_and(|password| !password.is_empty())
            && !is_local(arguments) =>
        {
            builder.password_from_env(PASSWORD_VARIABLE)
        }
        None => builder,
    };
    builder.connect(url(arguments)).await.map_err(|error| by_flag(error, arguments).into())
}

/// Names the flag or the environment variable of a wrong setting.
fn by_flag(error: Error, arguments: &StoreArguments) -> Error {
    let Error::BadConfiguration { setting, reason } = error else { return error };
    let is_from_variable =
        || std::env::var(STORE_VARIABLE).is_ok_and(|value| arguments.store.as_ref() == Some(&value));
    let setting = match setting {
        "url" if is_from_variable() => STORE_VARIABLE,
        "url" => "--store",
        "password_file" => "--password-file",
        "password_env" => PASSWORD_VARIABLE,
        // A parameter of the URL.
        _ => setting,
    };
    Error::BadConfiguration { setting, reason }
}

/// Returns `true` if the store is in the memory of this process.
pub(crate) fn is_memory(arguments: &StoreArguments) -> bool {
    has_scheme(arguments, "memory")
}

/// Returns `true` if the store needs no connection.
fn is_local(arguments: &StoreArguments) -> bool {
    is_memory(arguments) || has_scheme(arguments, "file")
}

/// Returns `true` if the URL of the store sets this parameter.
///
/// A parameter of the URL takes precedence over the program's default.
pub(crate) fn url_sets(arguments: &StoreArguments, parameter: &str) -> bool {
    let parameters = url(arguments).split_once('?').map_or("", |(_, parameters)| parameters);
    parameters.split('&').any(|pair| pair.split('=').next() == Some(parameter))
}

fn has_scheme(arguments: &StoreArguments, expected: &str) -> bool {
    // Trimmed and compared without case, as the library does.
    let scheme = url(arguments).trim().split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(expected))
}

fn url(arguments: &StoreArguments) -> &str {
    match arguments.store.as_deref() {
        // An empty variable counts as unset, and an empty option does not: it may be a mistake in a script.
        Some("") if std::env::var_os(STORE_VARIABLE).is_some_and(|url| url.is_empty()) => "file:",
        Some(url) => url,
        None => "file:",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_url_are_found() {
        let sets = |url: &str| {
            let arguments = StoreArguments { store: Some(url.to_owned()), password_file: None };
            url_sets(&arguments, "connect_timeout")
        };
        assert!(sets("redis://a?connect_timeout=1m") && sets("redis://a/1?b=c&connect_timeout=1m"));
        assert!(!sets("redis://connect_timeout") && !sets("redis://a?b=connect_timeout"));
    }

    #[test]
    fn local_stores_are_recognized_by_their_scheme() {
        let memory_and_local = |url: Option<&str>| {
            let arguments = StoreArguments { store: url.map(str::to_owned), password_file: None };
            (is_memory(&arguments), is_local(&arguments))
        };
        for memory in ["memory://", "Memory://", " memory://", "MEMORY:", "memory://file:"] {
            assert_eq!(memory_and_local(Some(memory)), (true, true), "{memory:?}");
        }
        for file in [None, Some("file:"), Some(" File:/memory:"), Some("file:///a")] {
            assert_eq!(memory_and_local(file), (false, true), "{file:?}");
        }
        for server in ["redis://memory", "rediss://file:1", "redis+unix:///file:", "memory", ""] {
            assert_eq!(memory_and_local(Some(server)), (false, false), "{server:?}");
        }
    }
}
