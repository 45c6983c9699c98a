use std::time::Instant;

use turnlock_testkit::Calls;

use crate::cpu;
use crate::measurement::Measurement;
use crate::player::{Player, Trouble};
use crate::sent::Commands;
use crate::server::Server;
use crate::spin::Spinners;

/// What had been used of everything at one moment.
pub(crate) struct Snapshot {
    at: Instant,
    calls: Calls,
    server_cpu: f64,
    client_cpu: f64,
    /// Of the machine, without the spinners and the driver.
    machine_cpu: f64,
}

impl Snapshot {
    pub(crate) async fn take(
        server: &Server,
        spinners: &Spinners,
        players: &[&Player],
    ) -> Result<Self, Trouble> {
        let client_cpu = players.iter().map(|player| player.cpu()).sum();
        let at = Instant::now();
        let apart = spinners.ids().chain([std::process::id()]).filter_map(cpu::of_process);
        let machine_cpu = cpu::of_machine() - apart.sum::<f64>();
        let server_cpu = server.cpu().await.map_err(Trouble::Failed)?;
        Ok(Self { at, calls: server.calls().await, server_cpu, client_cpu, machine_cpu })
    }

    /// Writes down what was used between an earlier one and this.
    pub(crate) fn since(&self, earlier: &Self, direct: &[String], measurement: &mut Measurement) {
        measurement.client_cpu = self.client_cpu - earlier.client_cpu;
        measurement.server_cpu = self.server_cpu - earlier.server_cpu;
        let known = measurement.client_cpu + measurement.server_cpu;
        let others = self.machine_cpu - earlier.machine_cpu - known;
        measurement.others_cpu = others.max(0.0) / (self.at - earlier.at).as_secs_f64().max(1e-9);
        measurement.set_commands(Commands::of(self.calls.since(&earlier.calls).iter(), direct));
    }
}
