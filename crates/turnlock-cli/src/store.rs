use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Error};
use turnlock::{Builder, Client};

use crate::arguments::{Arguments, StoreArguments};
use crate::system_store;

/// Environment variable with the URL of the store.
const STORE_VARIABLE: &str = "TURNLOCK_STORE";

/// Environment variable with the password of the store.
const PASSWORD_VARIABLE: &str = "TURNLOCK_PASSWORD";

/// Selects the store: that of the command line, else that of the environment.
pub(crate) fn select(mut arguments: Arguments) -> Result<Arguments, Error> {
    let store = &mut arguments.store;
    store.store =
        url_of(store.store.take(), store.system, std::env::var_os(STORE_VARIABLE)).map_err(|reason| {
            // An option before the command and one after it are not seen together by clap.
            Arguments::command().error(ErrorKind::ArgumentConflict, reason)
        })?;
    Ok(arguments)
}

fn url_of(
    option: Option<String>,
    system: bool,
    variable: Option<OsString>,
) -> Result<Option<String>, &'static str> {
    match (option, system) {
        (Some(_), true) => Err("--system cannot be used with --store"),
        (None, true) => Ok(Some(system_store::URL.to_owned())),
        (Some(url), false) => Ok(Some(url)),
        (None, false) => {
            let url = variable.map(OsString::into_string).transpose();
            url.map_err(|_| "the value of TURNLOCK_STORE is not UTF-8")
        }
    }
}

/// Connects to the store that the command line names.
pub(crate) async fn connect(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    if arguments.system {
        system_store::check()?;
    }
    let builder = match &arguments.password_file {
        Some(path) => builder.password_from_file(path),
        // A command under a lock inherits the variable, and may use a store that takes no password.
        None if std::env::var_os(PASSWORD_VARIABLE).is_some() && !is_local(arguments) => {
            builder.password_from_env(PASSWORD_VARIABLE)
        }
        None => builder,
    };
    Ok(builder.connect(url(arguments)).await?)
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
    arguments.store.as_deref().unwrap_or("file:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_precedence_over_the_environment() {
        let url = |option: Option<&str>, system, variable: Option<&str>| {
            url_of(option.map(str::to_owned), system, variable.map(OsString::from))
        };
        let is = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(url(None, false, None), Ok(None));
        assert_eq!(url(None, false, Some("redis://a")), is("redis://a"));
        assert_eq!(url(Some("redis://b"), false, Some("redis://a")), is("redis://b"));
        assert_eq!(url(None, true, Some("redis://a")), is(system_store::URL));
        assert!(url(Some("redis://b"), true, None).is_err());
    }

    #[test]
    fn parameters_of_the_url_are_found() {
        let sets = |url: &str| {
            let arguments = StoreArguments { store: Some(url.to_owned()), ..StoreArguments::default() };
            url_sets(&arguments, "connect_timeout")
        };
        assert!(sets("redis://a?connect_timeout=1m") && sets("redis://a/1?b=c&connect_timeout=1m"));
        assert!(!sets("redis://connect_timeout") && !sets("redis://a?b=connect_timeout"));
    }

    #[test]
    fn local_stores_are_recognized_by_their_scheme() {
        let memory_and_local = |url: Option<&str>| {
            let arguments = StoreArguments { store: url.map(str::to_owned), ..StoreArguments::default() };
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
