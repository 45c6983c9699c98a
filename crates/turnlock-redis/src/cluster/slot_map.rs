use std::collections::{BTreeMap, BTreeSet};

use crate::access::Address;

const SLOTS: usize = 16_384;

/// The most nodes that are kept. A cluster has at most as many masters as slots, and in practice a thousand nodes.
const MAX_NODES: usize = 2 * SLOTS;

/// The owners of all slots, from the replies of all nodes so far.
///
/// Each owner has a config epoch, and the higher epoch wins. So a partitioned node, which does not know that it
/// lost its slots, cannot get them back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    owners: Vec<Address>,
    /// Empty until an owner is known.
    slots: Vec<Option<SlotOwner>>,
    /// All known nodes, also those without slots. Queried if no owner replies.
    pub(super) peers: BTreeSet<Address>,
    /// The address with host name of nodes that have one, by the numeric address that redirects may contain.
    pub(super) canonical_addresses: BTreeMap<Address, Address>,
    /// The last reply reports a failed node with slots. A replica will take them over soon.
    pub(super) has_failed_master: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotOwner {
    /// Index into the owners.
    owner: u16,
    epoch: u64,
}

impl SlotMap {
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let entry = self.slots.get(usize::from(slot))?.as_ref()?;
        self.owners.get(usize::from(entry.owner))
    }

    /// Returns the nodes that own slots.
    pub(super) fn owners(&self) -> BTreeSet<Address> {
        let used: BTreeSet<_> = self.slots.iter().flatten().map(|entry| entry.owner).collect();
        used.into_iter().filter_map(|owner| self.owners.get(usize::from(owner)).cloned()).collect()
    }

    /// Applies a `MOVED` redirect.
    pub(super) fn moved(&mut self, slot: u16, to: &Address) {
        self.forget_unused_owners();
        let owner = self.owner_index(to);
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            let epoch = entry.map_or(0, |entry| entry.epoch);
            *entry = Some(SlotOwner { owner, epoch });
        }
    }

    /// Applies the reply of the node at `queried` to `CLUSTER NODES`.
    ///
    /// With `by_name`, nodes are addressed by their host name if they have one, since a certificate is valid for that.
    pub(super) fn apply(&mut self, nodes: &str, queried: &Address, by_name: bool) {
        self.has_failed_master = false;
        // Each slot has one owner, so a reply with more slots than there are is nonsense from there on.
        let mut slots_left = SLOTS;
        for line in nodes.lines().take(MAX_NODES) {
            self.apply_line(line, queried, by_name, &mut slots_left);
        }
        self.forget_unused_owners();
    }

    /// Forgets nodes that own no slots any more, if there are many.
    fn forget_unused_owners(&mut self) {
        if self.owners.len() <= SLOTS {
            return;
        }
        let before = std::mem::take(&mut self.owners);
        let mut kept = vec![None; before.len()];
        for entry in self.slots.iter_mut().flatten() {
            let at = usize::from(entry.owner);
            let (Some(address), Some(kept)) = (before.get(at), kept.get_mut(at)) else { continue };
            entry.owner = *kept.get_or_insert_with(|| {
                self.owners.push(address.clone());
                to_index(self.owners.len() - 1)
            });
        }
    }

    /// Applies a line, which describes one node. `None` for a node that cannot be used.
    fn apply_line(
        &mut self,
        line: &str,
        queried: &Address,
        by_name: bool,
        slots_left: &mut usize,
    ) -> Option<()> {
        let mut fields = line.split(' ');
        let _id = fields.next()?;
        let address = fields.next()?;
        let flags: Vec<_> = fields.next()?.split(',').collect();
        let epoch = fields.nth(3)?.parse().ok()?;
        let _link_state = fields.next()?;
        let ranges: Vec<_> = fields.filter_map(range).collect();
        let numeric = node_address(address, queried, false)?;
        let address = node_address(address, queried, by_name)?;
        if flags.contains(&"noaddr") || flags.contains(&"handshake") {
            return None;
        }
        if self.peers.len() < MAX_NODES {
            self.peers.insert(address.clone());
        }
        if numeric != address && self.canonical_addresses.len() < MAX_NODES {
            self.canonical_addresses.insert(numeric, address.clone());
        }
        if ranges.is_empty() || *slots_left == 0 {
            return Some(());
        }
        self.has_failed_master |= flags.contains(&"fail") || flags.contains(&"fail?");
        let owner = self.owner_index(&address);
        self.slots.resize(SLOTS, None);
        for (first, last) in ranges {
            let slots = self.slots.iter_mut().take(usize::from(last) + 1).skip(usize::from(first));
            for entry in slots.take(*slots_left) {
                *slots_left -= 1;
                if entry.is_none_or(|entry| entry.epoch <= epoch) {
                    *entry = Some(SlotOwner { owner, epoch });
                }
            }
        }
        Some(())
    }

    fn owner_index(&mut self, address: &Address) -> u16 {
        let known = self.owners.iter().position(|owner| owner == address);
        let index = known.unwrap_or_else(|| {
            self.owners.push(address.clone());
            self.owners.len() - 1
        });
        to_index(index)
    }
}

/// A reply adds at most as many owners as there are slots, and unused ones are forgotten.
fn to_index(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

/// Decodes `ip:port@bus` or `ip:port@bus,name`. A node that does not know its own IP leaves it out.
fn node_address(text: &str, queried: &Address, by_name: bool) -> Option<Address> {
    let (text, name) = text.split_once(',').unwrap_or((text, ""));
    let name = name.split(',').next().unwrap_or_default();
    let (endpoint, _bus) = text.split_once('@').unwrap_or((text, ""));
    let (ip, port) = endpoint.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = match (ip, name, queried) {
        (_, name, _) if by_name && !name.is_empty() => name,
        ("", _, Address::Tcp { host, .. }) => host,
        ("", ..) => return None,
        (ip, ..) => ip,
    };
    Some(Address::tcp(host, port))
}

/// Decodes `7` or `0-5460`. `None` for `[7->-id]`, a slot that is moving.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && usize::from(first) < SLOTS).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::tests::any_reply::config;

    /// Replies of parts that have a meaning, in any order.
    fn any_nodes() -> impl Strategy<Value = String> {
        const PARTS: &[&str] = &[
            "a1 :7000@17000 myself,master - 0 0 1 connected 0-99",
            "b2 10.0.0.1:7001@17001 master - 0 1 2 connected",
            "c3 [::1]:7002@17002,db.example slave b2 0 1 18446744073709551615 connected",
            "\n",
            "\n",
            " ",
            "0-16383",
            "16383-0",
            "0-65535",
            "65535",
            "65536",
            "[7->-b2]",
            "-",
            "@",
            ":",
            ",",
            "fail",
            "noaddr",
            "x",
        ];
        vec(select(PARTS), 0..24).prop_map(|parts| parts.join(" "))
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_reply_is_applied_or_ignored(
            replies in vec(any_nodes(), 1..3), by_name in any::<bool>(), slot in any::<u16>(),
        ) {
            let mut map = SlotMap::default();
            for nodes in &replies {
                map.apply(nodes, &queried(), by_name);
            }
            prop_assert!(map.slots.is_empty() || map.slots.len() == SLOTS);
            let (to, is_known) = (node(7_009), usize::from(slot) < map.slots.len());
            map.moved(slot, &to);
            prop_assert_eq!(map.owner(slot), is_known.then_some(&to));
        }
    }

    /// A reply with this number of nodes, each at a port of the host and with these slots.
    fn many_nodes(host: &str, count: usize, slots: &str) -> String {
        let mut nodes = String::new();
        for port in 1..=count {
            writeln!(nodes, "a {host}:{port}@1,{host}.example master - 0 0 1 connected {slots}")
                .expect("a text");
        }
        nodes
    }

    #[test]
    fn a_reply_with_too_many_nodes_or_slots_is_cut() {
        let mut map = SlotMap::default();
        map.apply(&many_nodes("10.0.0.1", MAX_NODES + 1, "0-16382 0-16383"), &queried(), false);
        assert_eq!((map.peers.len(), map.owners.len()), (MAX_NODES, 1));
        assert_eq!(map.owner(16_382), Some(&node(1)));
        assert_eq!(map.owner(16_383), None, "no slot is left after as many as there are");

        let nodes = many_nodes("10.0.0.1", MAX_NODES, "") + &many_nodes("10.0.0.2", 1, "7");
        let mut map = SlotMap::default();
        map.apply(&nodes, &queried(), false);
        assert!(map.owners.is_empty(), "the last line is not read");

        map.apply(&many_nodes("10.0.0.3", 1, "16384 65535 9-3"), &queried(), false);
        assert!(map.owners.is_empty() && map.slots.is_empty(), "there are no such slots");
    }

    #[test]
    fn the_nodes_of_all_replies_are_limited() {
        let mut map = SlotMap::default();
        for (host, count) in [("10.0.0.1", MAX_NODES), ("10.0.0.2", 9)] {
            map.apply(&many_nodes(host, count, ""), &queried(), true);
            assert_eq!((map.peers.len(), map.canonical_addresses.len()), (MAX_NODES, MAX_NODES));
        }
    }

    #[test]
    fn owners_without_slots_are_forgotten_when_there_are_many() {
        let mut map = SlotMap::default();
        map.apply(BEFORE, &queried(), false);
        let others = (0..SLOTS).map(|number| Address::tcp(&format!("host-{number}"), 7_000));
        map.owners.extend(others);
        map.moved(5, &node(7_009));
        assert_eq!((map.owner(5), map.owner(6)), (Some(&node(7_009)), Some(&queried())));
        assert_eq!((map.owner(200), map.owners.len()), (Some(&node(7_001)), 3));
    }

    fn queried() -> Address {
        Address::tcp("127.0.0.1", 7000)
    }

    fn node(port: u16) -> Address {
        Address::tcp("10.0.0.1", port)
    }

    const BEFORE: &str = "\
a1 :7000@17000 myself,master - 0 0 1 connected 0-99 [7->-b2] [100-<-b2]
b2 10.0.0.1:7001@17001 master - 0 1 2 connected 100 200-16383
c3 10.0.0.1:7002@17002,db.example slave b2 0 1 2 connected
d4 10.0.0.1:0@0 master,noaddr - 0 1 9 disconnected 0-16383
";

    #[test]
    fn nodes_are_decoded() {
        let mut map = SlotMap::default();
        map.apply("ERR something\n", &queried(), false);
        assert_eq!(map, SlotMap::default());
        map.apply(BEFORE, &queried(), false);
        assert_eq!(map.owner(0), Some(&queried()));
        assert_eq!(map.owner(7), Some(&queried()));
        assert_eq!(map.owner(100), Some(&node(7001)));
        assert_eq!(map.owner(101), None);
        assert_eq!(map.owner(16_383), Some(&node(7001)));
        assert_eq!(map.peers.len(), 3);
        assert!(map.peers.contains(&node(7002)));
        let mut by_name = SlotMap::default();
        by_name.apply(BEFORE, &queried(), true);
        let named = Address::tcp("db.example", 7002);
        assert!(by_name.peers.contains(&named));
        assert_eq!(by_name.canonical_addresses.get(&node(7002)), Some(&named));
        assert_eq!(by_name.canonical_addresses.get(&node(7001)), None);
    }

    #[test]
    fn a_failed_master_is_reported_until_it_is_replaced() {
        let mut map = SlotMap::default();
        map.apply(&BEFORE.replace("7001@17001 master", "7001@17001 master,fail?"), &queried(), false);
        assert!(map.has_failed_master);
        let after = "b2 10.0.0.1:7001@17001 master,fail - 0 1 2 disconnected
c3 10.0.0.1:7002@17002 master - 0 1 3 connected 100 200-16383
";
        map.apply(after, &queried(), false);
        assert!(!map.has_failed_master);
    }

    #[test]
    fn the_owner_with_the_higher_epoch_wins() {
        let mut map = SlotMap::default();
        map.apply(BEFORE, &queried(), false);
        let after = "c3 10.0.0.1:7002@17002 master - 0 1 3 connected 100 200-16383\n";
        map.apply(after, &queried(), false);
        assert_eq!(map.owner(100), Some(&node(7002)));
        // The old owner is back, with an outdated map.
        map.apply(BEFORE, &queried(), false);
        assert_eq!(map.owner(100), Some(&node(7002)));
        assert_eq!(map.owners().len(), 2);
    }

    #[test]
    fn a_moved_slot_stays_moved_until_newer_state_is_known() {
        let mut map = SlotMap::default();
        map.apply(BEFORE, &queried(), false);
        map.moved(5, &node(7009));
        assert_eq!(map.owner(5), Some(&node(7009)));
        assert_eq!(map.owner(6), Some(&queried()));
        map.moved(150, &node(7009));
        assert_eq!(map.owner(150), Some(&node(7009)));
        map.apply(&BEFORE.replace(" 1 connected 0-99", " 4 connected 0-99"), &queried(), false);
        assert_eq!(map.owner(5), Some(&queried()));
    }
}
