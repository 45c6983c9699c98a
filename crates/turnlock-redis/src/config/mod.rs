//! The configuration of Redis: its settings and its URLs.
//!
//! | module | what it has |
//! |---|---|
//! | this one | [`RedisSettings`]: the list of settings, and the checks |
//! | `url` | the servers, the user, the password and the database that a URL names |
//! | `credentials` | what is read when connecting: passwords |
//! | `target` | the result: all that is needed to connect |

mod credentials;
mod target;
mod url;

use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use turnlock_store::{OpenError, Secret, SettingError, settings};

use crate::access::{Access, Address, TlsDialler};
use crate::tls::Tls;
use credentials::Credentials;
pub use target::{ClusterMessages, Servers, Target};
pub use url::RedisUrl;

settings! {
    /// The settings of a Redis store. Not checked against each other yet.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct RedisSettings;
    pub in_text {
        /// The user. Needs a password.
        user: String,
        /// The file that contains the password.
        password_file: PathBuf,
        /// The environment variable that contains the password.
        password_env: String,
        /// The number of the database.
        database as "db": u32,
        /// The name of the connections on the server.
        client_name: String,
        /// The user for sentinels.
        sentinel_user: String,
        /// The file that contains the password for sentinels.
        sentinel_password_file: PathBuf,
        /// The environment variable that contains the password for sentinels.
        sentinel_password_env: String,
        /// How releases are published in a cluster.
        messages: ClusterMessages,
    }
    in_code {
        /// The password.
        password: Secret,
        /// The password for sentinels.
        sentinel_password: Secret,
        /// Set if TLS options are given, also if all of them are the default.
        tls: (),
    }
    parts {
        /// The TLS options.
        tls_options: Tls,
    }
}

impl RedisSettings {
    /// Returns what is needed to connect to these servers, after reading the files of the settings.
    pub async fn target(self, servers: Servers, use_tls: bool, limit: Duration) -> Result<Target, OpenError> {
        let target = tokio::task::spawn_blocking(move || self.read_target(servers, use_tls, limit)).await;
        target.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => Err(OpenError::RuntimeGone),
        })
    }

    /// Returns what is needed to connect to these servers. Blocks: it reads files.
    pub fn read_target(
        self,
        servers: Servers,
        use_tls: bool,
        connect_limit: Duration,
    ) -> Result<Target, OpenError> {
        self.check(&servers, use_tls)?;
        let (username, password) = self.credentials().resolve()?;
        let (sentinel_username, sentinel_password) = self.sentinel_credentials().resolve()?;
        let tls = if use_tls { Some(Arc::new(TlsDialler::new(self.tls_options)?)) } else { None };
        let access = Access {
            username,
            password,
            database: self.database.unwrap_or(0).into(),
            client_name: self.client_name,
            connect_limit,
            tls,
        };
        let (username, password) = (sentinel_username, sentinel_password);
        let sentinel_access = Access { username, password, database: 0, ..access.clone() };
        Ok(Target { servers, access, sentinel_access, messages: self.messages.unwrap_or_default() })
    }

    fn credentials(&self) -> Credentials<'_> {
        Credentials {
            user: ("user", &self.user),
            password: ("password", &self.password),
            file: ("password_file", &self.password_file),
            variable: ("password_env", &self.password_env),
        }
    }

    fn sentinel_credentials(&self) -> Credentials<'_> {
        Credentials {
            user: ("sentinel_user", &self.sentinel_user),
            password: ("sentinel_password", &self.sentinel_password),
            file: ("sentinel_password_file", &self.sentinel_password_file),
            variable: ("sentinel_password_env", &self.sentinel_password_env),
        }
    }

    /// Checks that the settings fit each other and the servers.
    fn check(&self, servers: &Servers, use_tls: bool) -> Result<(), SettingError> {
        let bad = |setting, reason: &str| Err(SettingError::new(setting, reason));
        if let Some(option) = self.tls_options.first_set().or(self.tls.map(|()| "tls")) {
            if matches!(servers, Servers::One(Address::Unix(_))) {
                return bad(option, "a Unix socket has no TLS; leave it out");
            }
            if !use_tls {
                return bad(
                    option,
                    "the URL is without TLS; use rediss://, rediss+sentinel:// or rediss+cluster://, or leave it out",
                );
            }
        }
        self.tls_options.check()?;
        if !matches!(servers, Servers::Sentinels { .. })
            && let Some(setting) = self.sentinel_credentials().first_set()
        {
            return bad(setting, "the store has no sentinels; use redis+sentinel://, or leave it out");
        }
        if let Some(name) = &self.client_name
            && (name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return bad("client_name", "must be visible ASCII characters without spaces, as Redis requires");
        }
        let is_cluster = matches!(servers, Servers::Cluster { .. });
        if self.messages.is_some() && !is_cluster {
            return bad("messages", "the store is not a cluster; use redis+cluster://, or leave it out");
        }
        match servers {
            _ if is_cluster && self.database.unwrap_or(0) != 0 => {
                bad("database", "a cluster has only database 0; leave it out")
            }
            Servers::Sentinels { master, .. } if master.is_empty() => bad(
                "master_name",
                "empty; set the name of the master in the sentinels, in a URL as in \
                 redis+sentinel://host:26379,host:26379/NAME",
            ),
            Servers::Sentinels { sentinels, .. } if sentinels.is_empty() => {
                bad("sentinels", "empty; set at least one address")
            }
            Servers::Cluster { seeds } if seeds.is_empty() => bad("seeds", "empty; set at least one address"),
            _ => Ok(()),
        }
    }
}
