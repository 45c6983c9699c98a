use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;
use turnlock::{Builder, Client};
use turnlock_testkit::{RedisServer, Redisson, eventually};

use super::site::{Shape, Site};
use super::{Java, LIMIT};
use crate::rig::{Kind, KindClient, NO_POLL};

/// The watchdog of those who are in a hurry: their leases end several times within a case.
pub(super) const HASTY: Duration = Duration::from_secs(4);

/// Servers with Java beside them. Starting Java costs a second of a processor, so a house is kept for the next case; two
/// cases never share one at a time. A single server belongs to its house, and has lost the data of the last case; several
/// servers are shared by all houses that need such.
pub(super) struct House {
    version: &'static str,
    redisson: Redisson,
    second: OnceCell<Redisson>,
    hasty: OnceCell<Redisson>,
    // Dropped last, since those above are connected to it.
    site: Site,
}

/// Counted over all houses, so that no two cases use the same names on servers that they share.
static VISITS: AtomicU64 = AtomicU64::new(0);

static EMPTY_HOUSES: Mutex<Vec<Arc<House>>> = Mutex::new(Vec::new());

fn empty_houses() -> MutexGuard<'static, Vec<Arc<House>>> {
    EMPTY_HOUSES.lock().expect("nothing panics in there")
}

impl House {
    pub(super) async fn enter(version: &'static str, shape: Shape) -> Arc<Self> {
        let empty = {
            let mut houses = empty_houses();
            // Cases come in the order of versions and shapes: what those of another one have left is not needed again.
            houses.retain(|house| house.version == version && house.site.shape() == shape);
            houses.pop()
        };
        if let Some(house) = empty {
            return house;
        }
        let site = Site::of(shape).await;
        let redisson = Redisson::start(version, &site.url()).await;
        let (second, hasty) = (OnceCell::new(), OnceCell::new());
        Arc::new(Self { version, redisson, second, hasty, site })
    }

    /// Leaves the house to the next case.
    pub(super) async fn leave(self: Arc<Self>) {
        if let Site::Single(server) = &self.site {
            server.ask::<()>(&["FLUSHALL"]).await.expect("the server can forget");
        }
        empty_houses().push(self);
    }

    pub(super) fn close_all() {
        empty_houses().clear();
        Site::close_all();
    }
}

/// The stay of one case in a house, with names and Java threads of its own.
pub(crate) struct Visit {
    pub(super) kind: Kind,
    house: Arc<House>,
    number: u64,
    names: AtomicU64,
}

impl Visit {
    pub(super) fn new(house: &Arc<House>, kind: Kind) -> Self {
        let number = VISITS.fetch_add(1, Ordering::Relaxed);
        Self { kind, house: Arc::clone(house), number, names: AtomicU64::new(0) }
    }

    pub(super) fn version(&self) -> &'static str {
        self.house.version
    }

    pub(super) fn url(&self) -> String {
        self.house.site.url()
    }

    /// A name that no other case uses, and that is no part of another.
    pub(super) fn name(&self) -> String {
        format!("job-{}-{}.", self.number, self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Names of all forms that matter: whole key names and channels are made of them by rules about braces.
    pub(super) fn names(&self) -> [String; 4] {
        let (tagged, open, plain) = (self.name(), self.name(), self.name());
        [plain, format!("a:{{{tagged}}}:b"), format!("x}}{open}"), format!("é:{}", self.name())]
    }

    /// A client of ours whose waiters are woken by messages alone.
    pub(super) async fn client(&self) -> KindClient {
        self.client_with(Client::builder()).await
    }

    pub(super) async fn client_with(&self, builder: Builder) -> KindClient {
        let client = builder.poll(NO_POLL).connect(&self.url()).await;
        KindClient::new(client.expect("a store that is there"), self.kind)
    }

    /// The same with a watchdog that is in a hurry.
    pub(super) async fn hasty_client(&self) -> KindClient {
        self.client_with(Client::builder().watchdog(HASTY)).await
    }

    /// A Java thread by name, at the kind of lock that the case is run for.
    pub(super) fn java(&self, thread: &str) -> Java {
        self.java_in(&self.house.redisson, thread)
    }

    pub(super) fn java_in(&self, redisson: &Redisson, thread: &str) -> Java {
        Java::new(redisson.thread(&self.thread(thread)), self.kind.name())
    }

    fn thread(&self, name: &str) -> String {
        format!("{}-{name}", self.number)
    }

    /// The owner on the wire that a Java thread is.
    pub(super) async fn owner(&self, thread: &str) -> String {
        self.house.redisson.owner(&self.thread(thread)).await
    }

    pub(super) fn redisson(&self) -> &Redisson {
        &self.house.redisson
    }

    /// A second Java process.
    pub(super) async fn second_redisson(&self) -> &Redisson {
        let url = self.url();
        self.house.second.get_or_init(|| Redisson::start(self.version(), &url)).await
    }

    /// A Java process whose watchdog is in a hurry.
    pub(super) async fn hasty_redisson(&self) -> &Redisson {
        let url = self.url();
        self.house.hasty.get_or_init(|| Redisson::start_with(self.version(), &url, HASTY, 0)).await
    }

    pub(super) fn site(&self) -> &Site {
        &self.house.site
    }

    pub(super) fn server(&self) -> &RedisServer {
        self.house.site.server()
    }

    /// A client that knows nothing of locks, to look at keys.
    pub(super) async fn plain(&self) -> MultiplexedConnection {
        self.server().client().await
    }

    /// Waits until so many clients listen to what is told of a name.
    pub(super) async fn until_listening(&self, name: &str, count: usize) {
        self.house.site.until_listening(name, count).await;
    }

    /// Waits until somebody waits for the lock that the case is about: it listens, or asks again and again.
    pub(super) async fn until_waiting(&self, name: &str) {
        if self.kind != Kind::Spin {
            return self.until_listening(name, 1).await;
        }
        let asked = async || self.server().calls().await.of("evalsha");
        let before = asked().await;
        eventually("it asks again", LIMIT, async || asked().await >= before + 3).await;
    }
}
