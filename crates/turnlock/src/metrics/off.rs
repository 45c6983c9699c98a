//! Without the feature `metrics`: types without size, and methods that do nothing.

#![expect(
    clippy::unused_self,
    clippy::trivially_copy_pass_by_ref,
    reason = "the interface is that with the feature"
)]

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{LockName, Moment};
use turnlock_store::Store;

use super::{AcquireOutcome, RenewalOutcome};
use crate::error::LostReason;

const _: () = assert!(size_of::<(Options, ClientMetrics, AcquireMetrics<'_>, HoldMetrics)>() == 0);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options(());

impl Options {
    #[inline]
    pub(crate) fn for_store(self, _: &'static str) -> Self {
        self
    }
}

#[derive(Debug)]
pub(crate) struct ClientMetrics;

impl ClientMetrics {
    #[inline]
    pub(crate) fn new(_: &Options) -> Self {
        Self
    }

    #[inline]
    pub(crate) fn meter(_: &Options, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }

    #[inline]
    pub(crate) fn begin_acquire(&self, _: &LockName) -> AcquireMetrics<'_> {
        AcquireMetrics(PhantomData)
    }

    #[inline]
    pub(crate) fn begin_hold(&self, _: &LockName) -> HoldMetrics {
        HoldMetrics(())
    }

    #[inline]
    pub(crate) fn count_renewal_batch(&self, _: usize) {}

    #[inline]
    pub(crate) fn count_call_batch(&self, _: usize) {}

    #[inline]
    pub(crate) fn count_message(&self, _: bool) {}

    #[inline]
    pub(crate) fn count_reconnect(&self) {}

    #[inline]
    pub(crate) fn publish(&self, _: Moment, _: Duration) {}
}

#[derive(Debug)]
pub(crate) struct AcquireMetrics<'a>(PhantomData<&'a ()>);

impl AcquireMetrics<'_> {
    #[inline]
    pub(crate) fn end(&mut self, _: AcquireOutcome, _: Duration, _: &HoldMetrics) {}

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        false
    }
}

#[derive(Debug, Default)]
pub(crate) struct HoldMetrics(());

impl HoldMetrics {
    #[inline]
    pub(crate) fn hand_over(&self, _: Moment, _: Moment) -> Self {
        Self(())
    }

    #[inline]
    pub(crate) fn end(&self, _: Moment, _: Moment) {}

    #[inline]
    pub(crate) fn count_loss(&self, _: LostReason) {}

    #[inline]
    pub(crate) fn count_renewal(&self, _: RenewalOutcome) {}

    #[inline]
    pub(crate) fn note_age(&self, _: Moment) {}
}
