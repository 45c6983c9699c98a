use super::{Builder, Settings};
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Connects to the store of this URL, with the default settings.
    ///
    /// | store | URL |
    /// |---|---|
    /// | a Redis or Valkey server, alone or with replicas | `redis://[user[:password]@]host[:port][/database]` |
    /// | a Unix socket | `redis+unix:///path` or `unix:///path` |
    /// | sentinels | `redis+sentinel://[user[:password]@]host[:port],host[:port],…/master-name[/database]` |
    /// | a cluster, by some of its nodes | `redis+cluster://[user[:password]@]host[:port],host[:port],…` |
    /// | with TLS | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` |
    /// | a file, for the processes of this machine | `file:PATH` or `file:///PATH` |
    /// | the default file of this user | `file:` |
    /// | the memory of this process | `memory://` |
    /// | another store in the memory of this process | `memory://NAME` |
    ///
    /// `valkey` can replace `redis`. The default port is 6379, and 26379 for sentinels. An IPv6 address is written in
    /// brackets. A password without a user (`redis://:password@host`) is that of the default user. In user, password and
    /// master name, the characters `/ ? # @ %` are written `%2F %3F %23 %40 %25`.
    ///
    /// A file store needs no server, and a Unix system. The file is created if it does not exist, for this user only; the
    /// directory must exist. The locks of a process that dies are free within a second, whatever their lease (except holds of `unlock_after`), and so are
    /// all locks after a restart of the machine. The default file is `turnlock/locks` in `XDG_STATE_HOME`, or in
    /// `~/.local/state`.
    ///
    /// Parameters follow a `?` and are separated by `&`. [`Builder`] has them as methods.
    ///
    /// | parameter | meaning | default |
    /// |---|---|---|
    /// | `db` | the database, instead of the one in the path | 0 |
    /// | `user` | the user, instead of the one before the host | the default user |
    /// | `password_file`, `password_env` | a file or an environment variable with the password | |
    /// | `client_name` | the name of the connections on the server | none |
    /// | `connect_timeout`, `response_timeout` | as `500ms`, `5s`, `2m` | see [`Builder`] |
    /// | `replicas` | how many replicas must acknowledge a lock | 0 |
    /// | `ca_file` | the CAs to trust, and only these (PEM) | those of the system |
    /// | `cert_file`, `key_file` | the certificate of the client and its key (PEM) | none |
    /// | `server_name` | the name in the server's certificate | the host |
    /// | `verify` | `no` accepts any server: see [`Tls::danger_accept_any_server`](crate::Tls::danger_accept_any_server) | `yes` |
    /// | `sentinel_user`, `sentinel_password_file`, `sentinel_password_env` | the credentials for sentinels | none |
    /// | `any_file_system` | `yes` accepts any file system: see [`Builder::any_file_system`]; the only parameter of `file:` | `no` |
    /// | `messages` | `auto`, `sharded` or `plain`: see [`ClusterMessages`](crate::ClusterMessages) | `auto` |
    ///
    /// No error and no log line contains a password.
    ///
    /// # Errors
    ///
    /// [`Error::BadConfiguration`] with the name of the setting. [`Error::Unavailable`] if the store cannot be reached
    /// within [`connect_timeout`](Builder::connect_timeout). [`Error::Denied`] if the password is wrong.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Returns a [`Builder`] to set options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects to the store of the `url` in the [`Settings`], which a file can have.
    ///
    /// # Errors
    ///
    /// Those of [`Client::connect`].
    pub async fn from_settings(settings: Settings) -> Result<Self, Error> {
        Builder::from(settings).open().await
    }
}
