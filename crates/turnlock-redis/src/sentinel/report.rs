//! Commands to sentinels, and their replies.

use std::collections::HashMap;

use redis::{Cmd, Value, from_redis_value_ref};

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
    redis::cmd("SENTINEL").arg(subcommand).arg(master).take()
}

impl SentinelReport {
    /// Decodes the replies to `SENTINEL MASTER` and, sent after it, `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    ///
    /// During a fail-over the first already has the new epoch, but the old address; only the second has the address of
    /// the promoted server. In this order, an address can be newer than its epoch, but never older.
    pub(super) fn read(sentinel_id: String, master: &Value, address: &Value) -> Option<Self> {
        let (host, port): (String, u16) = from_redis_value_ref(address).ok()?;
        let master: Fields = from_redis_value_ref(master).ok()?;
        Some(Self {
            sentinel_id,
            address: Address::tcp(&host, port),
            config_epoch: master.get("config-epoch")?.parse().ok()?,
            others: master.get("num-other-sentinels")?.parse().ok()?,
        })
    }
}

/// The state of a server, by names.
type Fields = HashMap<String, String>;

/// Decodes the reply to `SENTINEL SENTINELS`.
pub(super) fn others(reply: &Value) -> Vec<Address> {
    let sentinels: Vec<Fields> = from_redis_value_ref(reply).unwrap_or_default();
    let address = |fields: &Fields| Some(Address::tcp(fields.get("ip")?, fields.get("port")?.parse().ok()?));
    sentinels.iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::tests::any_reply::{any_reply, any_text, config};

    /// Names and values of a state, in any order.
    fn any_fields() -> impl Strategy<Value = Value> {
        vec(any_text(), 0..7)
            .prop_map(|texts| texts.into_iter().map(|text| Value::BulkString(text.into_bytes())).collect())
            .prop_map(Value::Array)
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_replies_are_a_report_or_none(
            master in prop_oneof![any_fields(), any_reply()],
            address in prop_oneof![any_fields(), any_reply()],
            sentinels in prop_oneof![vec(any_fields(), 0..3).prop_map(Value::Array), any_reply()],
        ) {
            let report = SentinelReport::read("me".to_owned(), &master, &address);
            prop_assert!(report.is_none() || matches!((&master, &address), (Value::Array(_), Value::Array(_))));
            let count = if let Value::Array(sentinels) = &sentinels { sentinels.len() } else { 0 };
            prop_assert!(others(&sentinels).len() <= count);
        }
    }

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
