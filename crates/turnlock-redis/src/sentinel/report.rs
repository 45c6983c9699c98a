//! Commands to sentinels, and their replies.

use redis::{Cmd, Value};

use crate::access::Address;

/// The state of a master as one sentinel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentinelReport {
    /// The id of the sentinel, since one sentinel can have several addresses.
    pub(super) sentinel_id: String,
    pub(super) address: Address,
    /// The epoch of the last fail-over that the sentinel knows.
    pub(super) config_epoch: u64,
    /// The number of other sentinels that it knows.
    pub(super) others: usize,
}

/// Builds `SENTINEL subcommand master`.
pub(super) fn query(subcommand: &str, master: &str) -> Cmd {
    let mut cmd = redis::cmd("SENTINEL");
    cmd.arg(subcommand).arg(master);
    cmd
}

/// Builds the query for the id of a sentinel. Without a reply, its address is used.
pub(super) fn my_id() -> Cmd {
    let mut cmd = redis::cmd("SENTINEL");
    cmd.arg("MYID");
    cmd
}

impl SentinelReport {
    /// Decodes the replies to `SENTINEL MASTER` and, sent after it, `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    ///
    /// During a fail-over the first already has the new epoch, but the old address; only the second has the address of
    /// the promoted server. In this order, an address can be newer than its epoch, but never older.
    pub(super) fn read(sentinel_id: String, master: &Value, address: &Value) -> Option<Self> {
        let Value::Array(address) = address else { return None };
        let [host, port] = &address[..] else { return None };
        Some(Self {
            sentinel_id,
            address: Address::tcp(&text(host)?, text(port)?.parse().ok()?),
            config_epoch: field(master, "config-epoch")?.parse().ok()?,
            others: field(master, "num-other-sentinels")?.parse().ok()?,
        })
    }
}

/// Decodes the reply to `SENTINEL SENTINELS`.
pub(super) fn others(reply: &Value) -> Vec<Address> {
    match reply {
        Value::Array(sentinels) => sentinels.iter().filter_map(address).collect(),
        _ => Vec::new(),
    }
}

fn address(fields: &Value) -> Option<Address> {
    Some(Address::tcp(&field(fields, "ip")?, field(fields, "port")?.parse().ok()?))
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// Finds a value by its name in a list that alternates names and values.
fn field(fields: &Value, name: &str) -> Option<String> {
    let Value::Array(fields) = fields else { return None };
    let pair = fields.chunks_exact(2).find(|pair| text(&pair[0]).as_deref() == Some(name))?;
    text(&pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(pairs.iter().flat_map(|(name, value)| [text(name), text(value)]).collect())
    }

    #[test]
    fn a_report_is_decoded() {
        let master = fields(&[
            ("name", "mymaster"),
            ("ip", "the.old.one"),
            ("port", "6379"),
            ("config-epoch", "7"),
            ("num-other-sentinels", "2"),
        ]);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let address = Value::Array(vec![text("::1"), text("6380")]);
        let report = SentinelReport {
            sentinel_id: "me".to_owned(),
            address: Address::tcp("::1", 6380),
            config_epoch: 7,
            others: 2,
        };
        let read = |master: &Value, address: &Value| SentinelReport::read("me".to_owned(), master, address);
        assert_eq!(read(&master, &address), Some(report));
        assert_eq!(read(&fields(&[("config-epoch", "7")]), &address), None);
        assert_eq!(read(&master, &Value::Nil), None);
    }

    #[test]
    fn other_sentinels_are_decoded() {
        let reply = Value::Array(vec![fields(&[("ip", "a"), ("port", "1")]), fields(&[("ip", "b")])]);
        assert_eq!(others(&reply), [Address::tcp("a", 1)]);
    }
}
