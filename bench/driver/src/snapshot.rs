use std::collections::BTreeMap;
use std::time::Instant;

use crate::busy_loops::BusyLoops;
use crate::commands::Commands;
use crate::cpu;
use crate::measurement::Measurement;
use crate::server::Server;
use crate::worker_process::{MeasureError, WorkerProcess};

/// All resource counters at one moment.
pub(crate) struct Snapshot {
    at: Instant,
    calls: BTreeMap<String, u64>,
    server_cpu: f64,
    client_cpu: f64,
    /// Of the machine, without the busy loops and the driver.
    machine_cpu: f64,
}

impl Snapshot {
    pub(crate) async fn take(
        server: &Server,
        busy_loops: &BusyLoops,
        processes: &[&WorkerProcess],
    ) -> Result<Self, MeasureError> {
        let client_cpu = processes.iter().map(|process| process.cpu()).sum();
        let at = Instant::now();
        let excluded = busy_loops.ids().chain([std::process::id()]).filter_map(cpu::of_process);
        let machine_cpu = cpu::of_machine() - excluded.sum::<f64>();
        let server_cpu = server.cpu().await.map_err(MeasureError::Failed)?;
        Ok(Self { at, calls: server.calls().await, server_cpu, client_cpu, machine_cpu })
    }

    /// Records what was used between an earlier snapshot and this one.
    pub(crate) fn since(&self, earlier: &Self, direct: &[String], measurement: &mut Measurement) {
        measurement.client_cpu = self.client_cpu - earlier.client_cpu;
        measurement.server_cpu = self.server_cpu - earlier.server_cpu;
        let known = measurement.client_cpu + measurement.server_cpu;
        let others = self.machine_cpu - earlier.machine_cpu - known;
        measurement.others_cpu = others.max(0.0) / (self.at - earlier.at).as_secs_f64().max(1e-9);
        let calls = self.calls.iter().map(|(command, calls)| {
            (command.as_str(), calls - earlier.calls.get(command).copied().unwrap_or_default())
        });
        measurement.set_commands(Commands::of(calls.filter(|(_, calls)| *calls > 0), direct));
    }
}
