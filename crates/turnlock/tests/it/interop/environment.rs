use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::OnceCell;
use turnlock::{Builder, Client};
use turnlock_testkit::{RedisServer, Redisson, eventually};

use super::deployment::{Deployment, Topology};
use super::{Java, SETUP_LIMIT};
use crate::fixture::{Kind, KindClient, NO_POLL};

/// A watchdog time-out so short that several leases end within a case.
pub(super) const SHORT_WATCHDOG: Duration = Duration::from_secs(4);

/// Servers with Redisson processes that are connected to them.
///
/// Starting Java costs a second of processor time, so an environment is pooled for the next case. Two cases never share one at a
/// time. A single server belongs to its environment and is flushed after each case; several servers are shared by all
/// environments of that topology.
pub(super) struct Environment {
    version: &'static str,
    redisson: Redisson,
    second: OnceCell<Redisson>,
    short_lease: OnceCell<Redisson>,
    // Dropped last, since those above are connected to it.
    deployment: Deployment,
}

/// Counted over all environments, so that no two cases use the same names on shared servers.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);

static IDLE: Mutex<Vec<Arc<Environment>>> = Mutex::new(Vec::new());

fn idle_environments() -> MutexGuard<'static, Vec<Arc<Environment>>> {
    IDLE.lock().expect("no panic while it is locked")
}

impl Environment {
    /// Takes an idle environment from the pool, or starts one.
    pub(super) async fn get(version: &'static str, topology: Topology) -> Arc<Self> {
        let idle = {
            let mut environments = idle_environments();
            // Cases run in the order of versions and topologies: environments of another one are not needed again.
            environments.retain(|environment| {
                environment.version == version && environment.deployment.topology() == topology
            });
            environments.pop()
        };
        if let Some(environment) = idle {
            return environment;
        }
        let deployment = Deployment::shared(topology).await;
        let redisson = Redisson::start(version, &deployment.url()).await;
        let (second, short_lease) = (OnceCell::new(), OnceCell::new());
        Arc::new(Self { version, redisson, second, short_lease, deployment })
    }

    /// Returns the environment to the pool.
    pub(super) async fn put_back(self: Arc<Self>) {
        if let Deployment::Single(server) = &self.deployment {
            server.query::<()>(&["FLUSHALL"]).await.expect("the server can be flushed");
        }
        idle_environments().push(self);
    }

    pub(super) fn close_all() {
        idle_environments().clear();
        Deployment::close_all();
    }
}

/// What one case works with: an environment, and names and Java threads of its own.
pub(crate) struct Context {
    pub(super) kind: Kind,
    environment: Arc<Environment>,
    number: u64,
    names: AtomicU64,
}

impl Context {
    pub(super) fn new(environment: &Arc<Environment>, kind: Kind) -> Self {
        let number = CONTEXTS.fetch_add(1, Ordering::Relaxed);
        Self { kind, environment: Arc::clone(environment), number, names: AtomicU64::new(0) }
    }

    pub(super) fn version(&self) -> &'static str {
        self.environment.version
    }

    pub(super) fn url(&self) -> String {
        self.environment.deployment.url()
    }

    /// A name that no other case uses, and that is no part of another.
    pub(super) fn name(&self) -> String {
        format!("job-{}-{}.", self.number, self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Names of all relevant forms: keys and channels are derived from them by rules about braces.
    pub(super) fn names(&self) -> [String; 4] {
        let (tagged, open, plain) = (self.name(), self.name(), self.name());
        [plain, format!("a:{{{tagged}}}:b"), format!("x}}{open}"), format!("é:{}", self.name())]
    }

    /// A turnlock client whose waiters are woken by messages alone.
    pub(super) async fn client(&self) -> KindClient {
        self.client_with(Client::builder()).await
    }

    pub(super) async fn client_with(&self, builder: Builder) -> KindClient {
        let client = builder.poll_interval(NO_POLL).connect(&self.url()).await;
        KindClient::new(client.expect("a reachable store"), self.kind)
    }

    /// The same with a short watchdog time-out.
    pub(super) async fn short_lease_client(&self) -> KindClient {
        self.client_with(Client::builder().watchdog_timeout(SHORT_WATCHDOG)).await
    }

    /// A Java thread by name, for the kind of lock that the case is run for.
    pub(super) fn java(&self, thread: &str) -> Java {
        self.java_in(&self.environment.redisson, thread)
    }

    pub(super) fn java_in(&self, redisson: &Redisson, thread: &str) -> Java {
        Java::new(redisson.thread(&self.thread(thread)), self.kind.name())
    }

    fn thread(&self, name: &str) -> String {
        format!("{}-{name}", self.number)
    }

    /// The owner id of a Java thread on the wire.
    pub(super) async fn owner(&self, thread: &str) -> String {
        self.environment.redisson.owner(&self.thread(thread)).await
    }

    pub(super) fn redisson(&self) -> &Redisson {
        &self.environment.redisson
    }

    /// A second Java process.
    pub(super) async fn second_redisson(&self) -> &Redisson {
        let url = self.url();
        self.environment.second.get_or_init(|| Redisson::start(self.version(), &url)).await
    }

    /// A Java process with a short watchdog time-out.
    pub(super) async fn short_lease_redisson(&self) -> &Redisson {
        let url = self.url();
        let start = || Redisson::start_with(self.version(), &url, SHORT_WATCHDOG, 0);
        self.environment.short_lease.get_or_init(start).await
    }

    pub(super) fn deployment(&self) -> &Deployment {
        &self.environment.deployment
    }

    pub(super) fn server(&self) -> &RedisServer {
        self.environment.deployment.server()
    }

    /// A plain Redis connection, to inspect keys.
    pub(super) async fn plain(&self) -> MultiplexedConnection {
        self.server().client().await
    }

    /// Waits until at least `count` clients subscribe to the channels of a name.
    pub(super) async fn until_subscribed(&self, name: &str, count: usize) {
        self.environment.deployment.until_subscribed(name, count).await;
    }

    /// Waits until a client waits for the lock of the case: it is subscribed, or (spin lock) polls.
    pub(super) async fn until_waiting(&self, name: &str) {
        if self.kind != Kind::Spin {
            return self.until_subscribed(name, 1).await;
        }
        let requests = async || self.server().calls().await.of("evalsha");
        let before = requests().await;
        eventually("it polls", SETUP_LIMIT, async || requests().await >= before + 3).await;
    }
}
