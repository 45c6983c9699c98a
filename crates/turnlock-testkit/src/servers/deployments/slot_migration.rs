//! The migration of a slot from one master to another.

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

/// How many keys are moved at once.
const BATCH: usize = 100;

/// A slot migration that has started.
///
/// Both masters know of it, and the old one redirects clients (`ASK`) for keys that it does not have. This
/// lasts until [`finish`](Self::finish), even if this is dropped.
#[derive(Debug)]
pub struct SlotMigration {
    pub(super) slot: u16,
    /// The master that has the slot, and the id of the one that gets it.
    pub(super) from: MultiplexedConnection,
    pub(super) to: MultiplexedConnection,
    pub(super) to_id: String,
    pub(super) to_port: u16,
    /// The other masters, which must know the new owner too.
    pub(super) others: Vec<MultiplexedConnection>,
}

impl SlotMigration {
    /// Moves all keys that the slot has now. Returns how many.
    pub async fn move_keys(&mut self) -> usize {
        let mut moved = 0;
        loop {
            let keys: Vec<Vec<u8>> = redis::cmd("CLUSTER")
                .arg("GETKEYSINSLOT")
                .arg(self.slot)
                .arg(BATCH)
                .query_async(&mut self.from)
                .await
                .expect("the keys of a slot");
            if keys.is_empty() {
                return moved;
            }
            moved += keys.len();
            let mut command = redis::cmd("MIGRATE");
            command.arg("127.0.0.1").arg(self.to_port).arg("").arg(0).arg(10_000).arg("REPLACE");
            let outcome = command.arg("KEYS").arg(keys).query_async::<String>(&mut self.from).await;
            // If a key has expired meanwhile, the reply is NOKEY, which is no failure.
            outcome.expect("keys can be moved");
        }
    }

    /// Moves the remaining keys, and assigns the slot to the new master.
    pub async fn finish(mut self) {
        // No new keys appear on the old master: it redirects clients for keys that it does not have.
        self.move_keys().await;
        // The new master first: otherwise no master has the slot for a moment.
        for master in [&mut self.to, &mut self.from] {
            assign_slot(master, self.slot, &self.to_id).await.expect("a slot can be assigned");
        }
        for other in &mut self.others {
            // A master that is down learns it from the others later.
            let _ = assign_slot(other, self.slot, &self.to_id).await;
        }
    }
}

/// Sends a master the new owner of a slot.
async fn assign_slot(master: &mut MultiplexedConnection, slot: u16, owner: &str) -> RedisResult<()> {
    redis::cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(owner).query_async(master).await
}
