use std::fmt;
use std::sync::Arc;

use super::address::Address;
use super::sentinels::Sentinels;
use crate::backend::Failure;

/// The target of a connection: a fixed server, or the current master.
#[derive(Clone)]
pub(super) enum Endpoint {
    Fixed(Address),
    Master(Arc<Sentinels>),
}

/// The address of an endpoint in one epoch.
///
/// Replies from this address are discarded once the epoch of the endpoint is higher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResolvedEndpoint {
    pub(super) address: Address,
    pub(super) epoch: u64,
}

impl Endpoint {
    /// Returns the current address. Queries the sentinels, if there are any.
    pub(super) async fn resolve(&self) -> Result<ResolvedEndpoint, Failure> {
        match self {
            Self::Fixed(address) => Ok(ResolvedEndpoint { address: address.clone(), epoch: 0 }),
            // Boxed, since a sentinel is queried over a connection that has an endpoint too.
            Self::Master(sentinels) => Box::pin(sentinels.resolve()).await,
        }
    }

    /// Returns `true` if the endpoint is known to have moved since `epoch`.
    pub(super) fn has_moved_since(&self, epoch: u64) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Master(sentinels) => sentinels.epoch() > epoch,
        }
    }

    /// Waits until the endpoint has moved since `epoch`. Never returns for a fixed endpoint.
    pub(super) async fn wait_until_moved(&self, epoch: u64) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Master(sentinels) => sentinels.wait_for_epoch_above(epoch).await,
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => address.fmt(f),
            Self::Master(sentinels) => sentinels.fmt(f),
        }
    }
}
