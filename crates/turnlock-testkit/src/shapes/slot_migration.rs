//! A slot of a cluster on its way from one master to another.

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

/// How many keys go at once.
const BATCH: usize = 100;

/// A migration that has begun: both masters know of it, and clients are sent on to the new one for keys that are not at
/// the old one any more. It stays so until it is finished, also when this is dropped.
#[derive(Debug)]
pub struct SlotMigration {
    pub(super) slot: u16,
    /// The master that has the slot, and the id of the one that gets it.
    pub(super) from: MultiplexedConnection,
    pub(super) to: MultiplexedConnection,
    pub(super) to_id: String,
    pub(super) to_port: u16,
    /// The other masters, which are told as well.
    pub(super) others: Vec<MultiplexedConnection>,
}

impl SlotMigration {
    /// Sends all keys over that are there now; gives back how many.
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
            // A key that has expired meanwhile is no failure: the answer is NOKEY then.
            outcome.expect("keys can be moved");
        }
    }

    /// Gives the slot to the new master, with whatever keys are still at the old one.
    pub async fn finish(mut self) {
        // From here on no key comes to the old master any more: it sends clients on for whatever it does not have.
        self.move_keys().await;
        // The new one first: were the old one to go first, nobody would have the slot for a moment.
        for master in [&mut self.to, &mut self.from] {
            tell(master, self.slot, &self.to_id).await.expect("a slot can change hands");
        }
        for other in &mut self.others {
            // A master that is away hears it from the rest later.
            let _ = tell(other, self.slot, &self.to_id).await;
        }
    }
}

/// Tells a master whose slot it is.
async fn tell(master: &mut MultiplexedConnection, slot: u16, owner: &str) -> RedisResult<()> {
    redis::cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(owner).query_async(master).await
}
