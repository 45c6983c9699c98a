//! What a sentinel says when it is asked.

use redis::{Cmd, Value};

use super::address::Address;

/// What one sentinel says of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentinelReport {
    /// Who says it: its own id, since one sentinel may be known by several addresses.
    pub(super) witness: String,
    pub(super) address: Address,
    /// How many fail-overs there were, by its count.
    pub(super) config_epoch: u64,
    /// How many other sentinels it knows.
    pub(super) others: usize,
}

pub(super) fn question(word: &str, master: &str) -> Cmd {
    let mut cmd = redis::cmd("SENTINEL");
    cmd.arg(word).arg(master);
    cmd
}

/// Asks a sentinel for its own id; one that does not say it goes by its address.
pub(super) fn who_are_you() -> Cmd {
    let mut cmd = redis::cmd("SENTINEL");
    cmd.arg("MYID");
    cmd
}

impl SentinelReport {
    /// Reads the answers to `SENTINEL MASTER` and, asked for after it, `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    ///
    /// While a fail-over is under way, the first has the new epoch with the old address already, and only the second names
    /// the server that was promoted. In this order of asking, an address can be newer than its epoch, and never older.
    pub(super) fn read(witness: String, master: &Value, address: &Value) -> Option<Self> {
        let Value::Array(address) = address else { return None };
        let [host, port] = &address[..] else { return None };
        Some(Self {
            witness,
            address: Address::tcp(&text(host)?, text(port)?.parse().ok()?),
            config_epoch: field(master, "config-epoch")?.parse().ok()?,
            others: field(master, "num-other-sentinels")?.parse().ok()?,
        })
    }
}

/// Reads the answer to `SENTINEL SENTINELS`.
pub(super) fn others(answer: &Value) -> Vec<Address> {
    match answer {
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

/// A value by its name, in a list where names and values take turns.
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
    fn a_report_is_read() {
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
            witness: "me".to_owned(),
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
    fn others_are_read() {
        let answer = Value::Array(vec![fields(&[("ip", "a"), ("port", "1")]), fields(&[("ip", "b")])]);
        assert_eq!(others(&answer), [Address::tcp("a", 1)]);
    }
}
