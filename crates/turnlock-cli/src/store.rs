use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::ErrorKind;
use turnlock::{Builder, Client, Error};
#[cfg(unix)]
use turnlock_file::{FileSettings, StorePath};

use crate::arguments::{Arguments, Command, StoreArguments};
use crate::escape::escape;
use crate::system_store;

/// Environment variable with the URL of the store.
const STORE_VARIABLE: &str = "TURNLOCK_STORE";
/// Environment variable with the password of the store.
const PASSWORD_VARIABLE: &str = "TURNLOCK_PASSWORD";

/// Selects the store: that of the command line, else that of the environment.
pub(crate) fn select(mut arguments: Arguments) -> Result<Arguments, clap::Error> {
    // An option before the command and one after it are not seen together by clap.
    let conflict = |reason| Arguments::command().error(ErrorKind::ArgumentConflict, reason);
    let has_option = arguments.store.store.is_some() || arguments.store.system;
    if let Command::Status(status) = &arguments.command
        && has_option
        && !status.urls.is_empty()
    {
        return Err(conflict("give status the URLs of stores, or --store or --system, and not both"));
    }
    select_url(&mut arguments.store).map_err(conflict)?;
    Ok(arguments)
}

/// Sets the URL of the store: that of the options, else that of the environment.
pub(crate) fn select_url(store: &mut StoreArguments) -> Result<(), &'static str> {
    store.store = url_of(store.store.take(), store.system, std::env::var_os(STORE_VARIABLE))?;
    Ok(())
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
            // An empty variable is one that a CI system has no value for. An empty option may be a mistake in a script.
            let url = variable.filter(|url| !url.is_empty()).map(OsString::into_string).transpose();
            url.map_err(|_| "the value of TURNLOCK_STORE is not UTF-8")
        }
    }
}

/// Connects to the store that the command line names.
pub(crate) async fn connect(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    let client = open(arguments, with_password(arguments, builder)).await;
    Ok(client.map_err(|error| by_flag(error, arguments))?)
}

/// Connects to one of several stores. A URL with a password of its own gets no other.
pub(crate) async fn connect_one(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    let builder = if has_password(arguments) { builder } else { with_password(arguments, builder) };
    Ok(open(arguments, builder).await?)
}

/// Connects to a store without the password of the command line, which is that of another store.
pub(crate) async fn connect_alone(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    Ok(open(arguments, builder).await?)
}

fn with_password(arguments: &StoreArguments, builder: Builder) -> Builder {
    match &arguments.password_file {
        Some(path) => builder.password_from_file(path),
        // A command under a lock inherits the variable, and may use a store that takes no password.
        None if std::env::var_os(PASSWORD_VARIABLE).is_some_and(|password| !password.is_empty())
            && !is_local(arguments) =>
        {
            builder.password_from_env(PASSWORD_VARIABLE)
        }
        None => builder,
    }
}

async fn open(arguments: &StoreArguments, builder: Builder) -> Result<Client, Error> {
    if arguments.system {
        system_store::check()?;
    }
    builder.connect(url(arguments)).await
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

/// Returns `true` if the URL contains a password, or names where it is.
fn has_password(arguments: &StoreArguments) -> bool {
    if is_local(arguments) {
        return false;
    }
    let (credentials, _) = url(arguments).rsplit_once('@').unwrap_or_default();
    let credentials = credentials.rsplit_once("//").map_or(credentials, |(_, credentials)| credentials);
    let is_named = |parameter| url_sets(arguments, parameter);
    credentials.contains(':') || is_named("password_file") || is_named("password_env")
}

/// Returns the URL of the store as it may be printed: without user, password and parameters.
pub(crate) fn printable_url(arguments: &StoreArguments) -> String {
    let url = url(arguments).trim();
    if has_scheme(arguments, "file") {
        return escape(url);
    }
    // A password whose characters are not encoded can contain any of `/?@`: the last @ is its end.
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let separator = if scheme.is_empty() { "" } else { "://" };
    escape(&format!("{scheme}{separator}{rest}"))
}

/// Returns `true` if the store is in the memory of this process.
pub(crate) fn is_memory(arguments: &StoreArguments) -> bool {
    has_scheme(arguments, "memory")
}

/// Returns `true` if the store needs no connection.
fn is_local(arguments: &StoreArguments) -> bool {
    is_memory(arguments) || has_scheme(arguments, "file")
}

/// Returns the path of a store in a file that does not exist.
#[cfg(unix)]
pub(crate) fn missing_file(arguments: &StoreArguments) -> Option<String> {
    let (_, rest) = url(arguments).trim().split_once(':').filter(|_| has_scheme(arguments, "file"))?;
    let (path, settings) = FileSettings::parse_url(rest).ok()?;
    let path = StorePath::new(&path, &settings).ok()?;
    (!path.exists()).then(|| path.to_string())
}

#[cfg(not(unix))]
pub(crate) fn missing_file(_: &StoreArguments) -> Option<String> {
    None
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
    fn a_printed_url_has_no_user_no_password_and_no_parameters() {
        let arguments =
            |url: &str| StoreArguments { store: Some(url.to_owned()), ..StoreArguments::default() };
        for (url, expected, has_password) in [
            ("redis://h:1/2", "redis://h:1/2", false),
            ("redis://:secret@h", "redis://h", true),
            ("redis://user:sec@ret/x@h:1?lease=3s", "redis://h:1", true),
            ("redis+sentinel://u:secret@a,b/main?password_env=A", "redis+sentinel://a,b/main", true),
            ("redis://user@h?password_file=/secret", "redis://h", true),
            ("redis://user@h", "redis://h", false),
            ("user:secret@h", "h", true),
            ("redis+unix:///run/a@b?x=secret", "redis+unix://b", false),
            ("file:/var/a@b?c", "file:/var/a@b?c", false),
            ("redis://a\u{1b}[2J", "redis://a\\u{1b}[2J", false),
        ] {
            assert_eq!(printable_url(&arguments(url)), expected);
            assert_eq!(super::has_password(&arguments(url)), has_password, "{url}");
        }
        assert_eq!(printable_url(&StoreArguments::default()), "file:");
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
