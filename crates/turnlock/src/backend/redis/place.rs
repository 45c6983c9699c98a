use std::fmt;
use std::sync::Arc;

use super::address::Address;
use super::sentinels::Sentinels;
use crate::backend::Failure;

/// Where a connection is made to: always the same server, or whichever is the master now.
#[derive(Clone)]
pub(super) enum Place {
    Fixed(Address),
    Master(Arc<Sentinels>),
}

/// A server at a time. What was said to it is worth nothing once the epoch has risen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) address: Address,
    pub(super) epoch: u64,
}

impl Place {
    /// Where it is now. Asks, if that can have changed.
    pub(super) async fn find(&self) -> Result<Stay, Failure> {
        match self {
            Self::Fixed(address) => Ok(Stay { address: address.clone(), epoch: 0 }),
            // On the heap, since a sentinel is asked over a connection that has a place too.
            Self::Master(sentinels) => Box::pin(sentinels.find()).await,
        }
    }

    /// Whether it is somewhere else than it was at `epoch`, as far as is known here.
    pub(super) fn has_moved_since(&self, epoch: u64) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Master(sentinels) => sentinels.epoch() > epoch,
        }
    }

    /// Waits until it is somewhere else than it was at `epoch`.
    pub(super) async fn moves_on_from(&self, epoch: u64) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Master(sentinels) => sentinels.rises_above(epoch).await,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => address.fmt(f),
            Self::Master(sentinels) => sentinels.fmt(f),
        }
    }
}
