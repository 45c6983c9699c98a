use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Address {
    Tcp { host: Arc<str>, port: u16 },
    Unix(PathBuf),
}

impl Address {
    pub(crate) fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    pub(crate) fn unix(path: impl AsRef<Path>) -> Self {
        Self::Unix(path.as_ref().to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // An IPv6 address contains colons.
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
