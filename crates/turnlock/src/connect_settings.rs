use std::sync::Arc;
use std::time::Duration;

use crate::agreement::agreed;
use crate::backend::redis::{Access, Address, ClusterMessages, Secret, Shape, Target, TlsDialler};
use crate::credentials::{CredentialNames, Credentials, SENTINEL_SETTINGS, SERVER_SETTINGS};
use crate::error::Error;
use crate::tls::Tls;

/// The settings of connections, from the builder or the URL. Not checked against each other yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectSettings {
    pub(crate) credentials: Credentials,
    pub(crate) sentinel_credentials: Credentials,
    pub(crate) database: Option<i64>,
    pub(crate) client_name: Option<String>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) response_timeout: Option<Duration>,
    pub(crate) replicas: Option<u32>,
    pub(crate) tls: Option<Tls>,
    pub(crate) messages: Option<ClusterMessages>,
    pub(crate) any_file_system: Option<bool>,
}

/// The servers of a store, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    One(Address),
    Sentinels { sentinels: Vec<Address>, master: String },
    Cluster { seeds: Vec<Address> },
}

impl ConnectSettings {
    /// Combines the settings of the builder and of the URL. Fails if they contradict each other.
    pub(crate) fn merge(self, url: Self) -> Result<Self, Error> {
        Ok(Self {
            credentials: merge_credentials(&SERVER_SETTINGS, self.credentials, url.credentials)?,
            sentinel_credentials: merge_credentials(
                &SENTINEL_SETTINGS,
                self.sentinel_credentials,
                url.sentinel_credentials,
            )?,
            database: agreed("database", self.database, url.database)?,
            client_name: agreed("client_name", self.client_name, url.client_name)?,
            connect_timeout: agreed("connect_timeout", self.connect_timeout, url.connect_timeout)?,
            response_timeout: agreed("response_timeout", self.response_timeout, url.response_timeout)?,
            replicas: agreed("replicas", self.replicas, url.replicas)?,
            tls: match (self.tls, url.tls) {
                (Some(builder), Some(url)) => Some(builder.merge(url)?),
                (builder, url) => builder.or(url),
            },
            messages: agreed("messages", self.messages, url.messages)?,
            any_file_system: agreed("any_file_system", self.any_file_system, url.any_file_system)?,
        })
    }

    /// Checks the settings for a store without a server.
    pub(crate) fn check_for_embedded(&self, store: &str) -> Result<(), Error> {
        let set = [
            self.credentials.first_set(&SERVER_SETTINGS),
            self.sentinel_credentials.first_set(&SENTINEL_SETTINGS),
            self.database.map(|_| "database"),
            self.client_name.as_ref().map(|_| "client_name"),
            self.tls.as_ref().map(Tls::first_set),
            self.messages.map(|_| "messages"),
            self.any_file_system.map(|_| "any_file_system"),
        ];
        if let Some(setting) = set.into_iter().flatten().next() {
            return Err(Error::bad_setting(setting, format!("has no meaning for {store}; leave it out")));
        }
        match self.replicas {
            None | Some(0) => Ok(()),
            Some(_) => Err(Error::bad_setting("replicas", format!("{store} has no replicas; leave it out"))),
        }
    }

    /// Returns what is needed to connect to these servers. Blocks: it reads files.
    pub(crate) fn target(
        self,
        servers: Servers,
        use_tls: bool,
        connect_limit: Duration,
    ) -> Result<Target, Error> {
        self.check(&servers, use_tls)?;
        let tls = if use_tls { Some(Arc::new(TlsDialler::new(self.tls.unwrap_or_default())?)) } else { None };
        let (username, password) = self.credentials.resolve(&SERVER_SETTINGS)?;
        let (sentinel_username, sentinel_password) = self.sentinel_credentials.resolve(&SENTINEL_SETTINGS)?;
        let access = Access {
            username,
            password,
            database: self.database.unwrap_or(0),
            client_name: self.client_name,
            connect_limit,
            tls,
        };
        let shape = match servers {
            Servers::One(address) => Shape::Single(address),
            Servers::Cluster { seeds } => {
                Shape::Cluster { seeds, messages: self.messages.unwrap_or_default() }
            }
            Servers::Sentinels { sentinels, master } => {
                let access = Access {
                    username: sentinel_username,
                    password: sentinel_password,
                    database: 0,
                    ..access.clone()
                };
                Shape::Sentinel { sentinels, master, access }
            }
        };
        Ok(Target { shape, access })
    }

    /// Checks that the settings fit each other and the servers.
    fn check(&self, servers: &Servers, use_tls: bool) -> Result<(), Error> {
        match (&self.tls, servers) {
            (Some(tls), Servers::One(Address::Unix(_))) => {
                return Err(Error::bad_setting(tls.first_set(), "a Unix socket has no TLS; leave it out"));
            }
            (Some(tls), _) if !use_tls => {
                let reason = "the URL is without TLS; use rediss://, rediss+sentinel:// or rediss+cluster://, \
                              or leave it out";
                return Err(Error::bad_setting(tls.first_set(), reason));
            }
            (Some(tls), _) => tls.check()?,
            (None, _) => {}
        }
        if !matches!(servers, Servers::Sentinels { .. })
            && let Some(setting) = self.sentinel_credentials.first_set(&SENTINEL_SETTINGS)
        {
            let reason = "the store has no sentinels; use redis+sentinel://, or leave it out";
            return Err(Error::bad_setting(setting, reason));
        }
        if !matches!(servers, Servers::Cluster { .. }) && self.messages.is_some() {
            let reason = "the store is not a cluster; use redis+cluster://, or leave it out";
            return Err(Error::bad_setting("messages", reason));
        }
        if self.any_file_system.is_some() {
            let reason = "only a file store has it; leave it out";
            return Err(Error::bad_setting("any_file_system", reason));
        }
        match (self.database, servers) {
            (Some(i64::MIN..=-1), _) => {
                return Err(Error::bad_setting("database", "must be 0 or more"));
            }
            (Some(1..), Servers::Cluster { .. }) => {
                return Err(Error::bad_setting("database", "a cluster has only database 0; leave it out"));
            }
            _ => {}
        }
        if let Some(name) = &self.client_name
            && (name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let reason = "must be visible ASCII characters without spaces, as Redis requires";
            return Err(Error::bad_setting("client_name", reason));
        }
        match servers {
            Servers::Sentinels { master, .. } if master.is_empty() => Err(Error::bad_setting(
                "master_name",
                "empty; set the name of the master in the sentinels, in a URL as in \
                 redis+sentinel://host:26379,host:26379/NAME",
            )),
            Servers::Sentinels { sentinels, .. } if sentinels.is_empty() => {
                Err(Error::bad_setting("sentinels", "empty; set at least one address"))
            }
            Servers::Cluster { seeds } if seeds.is_empty() => {
                Err(Error::bad_setting("seeds", "empty; set at least one address"))
            }
            _ => Ok(()),
        }
    }
}

fn merge_credentials(
    names: &CredentialNames,
    builder: Credentials,
    url: Credentials,
) -> Result<Credentials, Error> {
    Ok(Credentials {
        user: agreed(names.user, builder.user, url.user)?,
        password: agreed::<Secret>(names.password, builder.password, url.password)?,
        password_file: agreed(names.password_file, builder.password_file, url.password_file)?,
        password_env: agreed(names.password_env, builder.password_env, url.password_env)?,
    })
}
