use turnlock::{Builder, Client, OwnerId};
use turnlock_testkit::{ClusterSet, RedisServer, TempDir, eventually};

use crate::AWHILE;
use crate::dashboard::Dashboard;

/// The store of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Redis,
    Cluster,
    File,
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Cluster => "cluster",
            Self::File => "file",
        }
    }

    /// Why the store is not available on this machine, if it is not.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Redis => RedisServer::missing(),
            Self::Cluster => ClusterSet::missing(),
            Self::File => None,
        }
    }
}

/// The store of one case, and the dashboard on it.
#[derive(Debug)]
pub(crate) struct Fixture {
    url: String,
    server: Option<RedisServer>,
    _cluster: Option<ClusterSet>,
    dir: TempDir,
}

impl Fixture {
    pub(crate) async fn new(store: Store) -> Self {
        let dir = TempDir::new();
        let (mut server, mut cluster) = (None, None);
        let url = match store {
            Store::Redis => server.insert(RedisServer::start().await).url(),
            Store::Cluster => cluster.insert(ClusterSet::start().await).url(),
            Store::File => format!("file:{}", dir.path().join("locks").display()),
        };
        Self { url, server, _cluster: cluster, dir }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The server of the store.
    pub(crate) fn server(&mut self) -> &mut RedisServer {
        self.server.as_mut().expect("a case on Redis")
    }

    /// Writes a file of this case, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Connects a client whose identity is on the store.
    pub(crate) async fn client(&self, label: &str) -> Client {
        self.client_of(Client::builder().label(label)).await
    }

    /// The same with other settings.
    pub(crate) async fn client_of(&self, builder: Builder) -> Client {
        let client = builder.connect(&self.url).await.unwrap();
        // A client writes its identity after its first acquire.
        client.lock("introduction").lock().await.unwrap().unlock().await.unwrap();
        let owner = OwnerId::from_wire(&format!("{}:1", client.id()));
        eventually("the client has written its identity", AWHILE, || async {
            client.identities(std::slice::from_ref(&owner)).await.unwrap()[0].is_some()
        })
        .await;
        client
    }

    /// Starts a dashboard with these arguments, on a free port.
    pub(crate) async fn dashboard(&self, arguments: &[&str]) -> Dashboard {
        Dashboard::start(&self.url, 0, arguments).await
    }
}
