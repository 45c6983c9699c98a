use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::Address;
use crate::failure;
use turnlock_store::Failure;

/// The target of a connection: a fixed server, or the current master.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Fixed(Address),
    Master(Arc<dyn MasterFinder>),
}

/// Finds the current master, as sentinels do. Its display names the master.
pub(crate) trait MasterFinder: fmt::Display + Send + Sync {
    /// Queries the address of the master.
    fn resolve(&self) -> BoxFuture<'_, Result<ResolvedEndpoint, Failure>>;

    /// Returns the local epoch, which increases with every new master.
    fn epoch(&self) -> &watch::Sender<u64>;
}

/// The address of an endpoint in one epoch.
///
/// Replies from this address are discarded once the epoch of the endpoint is higher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedEndpoint {
    pub(crate) address: Address,
    pub(crate) epoch: u64,
}

impl Endpoint {
    /// Returns the current address. Queries the sentinels, if there are any.
    pub(crate) async fn resolve(&self) -> Result<ResolvedEndpoint, Failure> {
        match self {
            Self::Fixed(address) => Ok(ResolvedEndpoint { address: address.clone(), epoch: 0 }),
            Self::Master(master) => master.resolve().await,
        }
    }

    /// Resolves the endpoint and opens a connection there, within `limit`.
    ///
    /// # Errors
    ///
    /// Also if the endpoint moves meanwhile: a dead server is not awaited if there is a new master.
    pub(crate) async fn open<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        limit: Duration,
        open: impl FnOnce(ResolvedEndpoint) -> F,
    ) -> Result<T, Failure> {
        let opening = async {
            let resolved = self.resolve().await?;
            tokio::select! {
                opened = open(resolved.clone()) => opened,
                () = self.wait_until_moved(resolved.epoch) => {
                    let from = &resolved.address;
                    Err(Failure::unavailable(format!("{self} moved away from {from} while connecting")))
                }
            }
        };
        timeout(limit, opening).await.unwrap_or_else(|_| Err(failure::connect_timed_out(self, limit)))
    }

    /// Returns `true` if the endpoint is known to have moved since `epoch`.
    pub(crate) fn has_moved_since(&self, epoch: u64) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Master(master) => *master.epoch().borrow() > epoch,
        }
    }

    /// Waits until the endpoint has moved since `epoch`. Never returns for a fixed endpoint.
    pub(crate) async fn wait_until_moved(&self, epoch: u64) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Master(master) => {
                let mut current = master.epoch().subscribe();
                // Fails only if the sender is dropped, which `master` owns.
                drop(current.wait_for(|current| *current > epoch).await);
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => address.fmt(f),
            Self::Master(master) => master.fmt(f),
        }
    }
}
