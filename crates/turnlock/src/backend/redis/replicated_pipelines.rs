use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::common::Common;
use super::connection::{Connection, Purpose};
use super::endpoint::Endpoint;
use super::replicated::ReplicatedPipeline;
use super::reply::CallOptions;

/// The [pipelines](ReplicatedPipeline) of a server, each started on first use.
///
/// There are two for each required number of replicas: one for acquires and one for calls that extend leases, so that a
/// renewal is acknowledged before its lease ends, however many acquires are queued.
pub(super) struct ReplicatedPipelines {
    common: Arc<Common>,
    endpoint: Endpoint,
    /// The key is the number of replicas, and whether the calls extend leases.
    pipelines: Mutex<BTreeMap<(u32, bool), Arc<ReplicatedPipeline>>>,
}

impl ReplicatedPipelines {
    pub(super) fn new(common: &Arc<Common>, endpoint: &Endpoint) -> Self {
        Self { common: Arc::clone(common), endpoint: endpoint.clone(), pipelines: Mutex::default() }
    }

    /// Returns the pipeline for calls with these options.
    pub(super) fn pipeline(
        &self,
        CallOptions { replicas, extends_lease, .. }: CallOptions,
    ) -> Arc<ReplicatedPipeline> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let connection = Connection::new(&self.common, self.endpoint.clone(), Purpose::ReplicatedScripts);
            Arc::new(ReplicatedPipeline::new(connection, replicas))
        };
        Arc::clone(pipelines.entry((replicas, extends_lease)).or_insert_with(start))
    }
}

impl fmt::Debug for ReplicatedPipelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("ReplicatedPipelines").field(&pipelines.keys()).finish()
    }
}
