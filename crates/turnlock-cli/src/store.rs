use turnlock::{Builder, Client};

use crate::arguments::StoreArguments;

/// The variable with the password of the store.
const PASSWORD: &str = "TURNLOCK_PASSWORD";

/// Connects to the store that the command line names.
pub(crate) async fn connect(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    let builder = match &arguments.password_file {
        Some(path) => builder.password_from_file(path),
        // A command under a lock inherits the variable, and may use a store that has no use for it.
        None if std::env::var_os(PASSWORD).is_some() && !is_local(arguments) => {
            builder.password_from_env(PASSWORD)
        }
        None => builder,
    };
    Ok(builder.connect(url(arguments)).await?)
}

/// Whether the store is in the memory of this process.
pub(crate) fn is_memory(arguments: &StoreArguments) -> bool {
    has_scheme(arguments, "memory")
}

/// Whether the store is reached without a connection.
fn is_local(arguments: &StoreArguments) -> bool {
    is_memory(arguments) || has_scheme(arguments, "file")
}

/// Whether the URL of the store sets this parameter, which then goes before what the program would say.
pub(crate) fn sets(arguments: &StoreArguments, parameter: &str) -> bool {
    let parameters = url(arguments).split_once('?').map_or("", |(_, parameters)| parameters);
    parameters.split('&').any(|pair| pair.split('=').next() == Some(parameter))
}

fn has_scheme(arguments: &StoreArguments, scheme: &str) -> bool {
    // As the library reads it.
    let found = url(arguments).trim().split_once(':').map(|(found, _)| found);
    found.is_some_and(|found| found.eq_ignore_ascii_case(scheme))
}

fn url(arguments: &StoreArguments) -> &str {
    arguments.store.as_deref().unwrap_or("file:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_url_are_seen() {
        let sets = |url: &str| {
            let arguments = StoreArguments { store: Some(url.to_owned()), password_file: None };
            sets(&arguments, "connect_timeout")
        };
        assert!(sets("redis://a?connect_timeout=1m") && sets("redis://a/1?b=c&connect_timeout=1m"));
        assert!(!sets("redis://connect_timeout") && !sets("redis://a?b=connect_timeout"));
    }

    #[test]
    fn stores_are_told_apart_as_they_are_opened() {
        let told = |url: Option<&str>| {
            let arguments = StoreArguments { store: url.map(str::to_owned), password_file: None };
            (is_memory(&arguments), is_local(&arguments))
        };
        for memory in ["memory://", "Memory://", " memory://", "MEMORY:", "memory://file:"] {
            assert_eq!(told(Some(memory)), (true, true), "{memory:?}");
        }
        for file in [None, Some("file:"), Some(" File:/memory:"), Some("file:///a")] {
            assert_eq!(told(file), (false, true), "{file:?}");
        }
        for server in ["redis://memory", "rediss://file:1", "redis+unix:///file:", "memory", ""] {
            assert_eq!(told(Some(server)), (false, false), "{server:?}");
        }
    }
}
