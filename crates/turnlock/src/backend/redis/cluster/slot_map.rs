use std::collections::{BTreeMap, BTreeSet};

use crate::backend::redis::address::Address;

const SLOTS: usize = 16_384;

/// Who has which slot, by all that nodes have said.
///
/// Each claim comes with the epoch in which it was won, and of two claims the later one counts: so a node that was cut
/// off, and does not know that its slots were given away, cannot bring them back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotMap {
    owners: Vec<Address>,
    slots: Vec<Option<Claim>>,
    /// Every node that was named, also those without slots: whom to ask when the owners are silent.
    peers: BTreeSet<Address>,
    /// Those who are called by their names, by their addresses, which redirects may have.
    names: BTreeMap<Address, Address>,
    /// Whether one that has slots was said to have failed: somebody will take them over soon.
    is_ailing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    /// A place among the owners.
    owner: u16,
    epoch: u64,
}

impl Default for SlotMap {
    fn default() -> Self {
        Self {
            owners: Vec::new(),
            slots: vec![None; SLOTS],
            peers: BTreeSet::new(),
            names: BTreeMap::new(),
            is_ailing: false,
        }
    }
}

impl SlotMap {
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let claim = self.slots.get(usize::from(slot))?.as_ref()?;
        self.owners.get(usize::from(claim.owner))
    }

    /// Those who have slots.
    pub(super) fn owners(&self) -> BTreeSet<&Address> {
        let used: BTreeSet<_> = self.slots.iter().flatten().map(|claim| claim.owner).collect();
        used.into_iter().filter_map(|owner| self.owners.get(usize::from(owner))).collect()
    }

    /// The name of the node at this address, if it goes by one.
    pub(super) fn known_as(&self, address: &Address) -> Option<&Address> {
        self.names.get(address)
    }

    /// Whether slots are about to change hands, by the last that was heard.
    pub(super) fn is_ailing(&self) -> bool {
        self.is_ailing
    }

    pub(super) fn peers(&self) -> impl Iterator<Item = &Address> {
        self.peers.iter()
    }

    /// A node has said that a slot is somewhere else now.
    pub(super) fn moved(&mut self, slot: u16, to: &Address) {
        let owner = self.place_of(to);
        if let Some(claim) = self.slots.get_mut(usize::from(slot)) {
            let epoch = claim.map_or(0, |claim| claim.epoch);
            *claim = Some(Claim { owner, epoch });
        }
    }

    /// Takes in what the node at `asked` answered to `CLUSTER NODES`. Whether it was an answer to that.
    ///
    /// With `by_name`, a node's host name counts where it has one: a certificate is made out to that.
    pub(super) fn learn(&mut self, nodes: &str, asked: &Address, by_name: bool) -> bool {
        let nodes: Vec<_> = nodes.lines().filter_map(|line| NodeLine::read(line, asked, by_name)).collect();
        for node in &nodes {
            self.take_in(node);
        }
        self.is_ailing = nodes.iter().any(|node| node.has_failed && !node.ranges.is_empty());
        !nodes.is_empty()
    }

    fn take_in(&mut self, node: &NodeLine) {
        self.peers.insert(node.address.clone());
        if let Some(numeric) = &node.numeric {
            self.names.insert(numeric.clone(), node.address.clone());
        }
        if node.ranges.is_empty() {
            return;
        }
        let owner = self.place_of(&node.address);
        for (first, last) in &node.ranges {
            for claim in self.slots.iter_mut().take(usize::from(*last) + 1).skip(usize::from(*first)) {
                if claim.is_none_or(|claim| claim.epoch <= node.epoch) {
                    *claim = Some(Claim { owner, epoch: node.epoch });
                }
            }
        }
    }

    fn place_of(&mut self, address: &Address) -> u16 {
        let known = self.owners.iter().position(|owner| owner == address);
        let place = known.unwrap_or_else(|| {
            self.owners.push(address.clone());
            self.owners.len() - 1
        });
        // A cluster has at most a thousand nodes.
        u16::try_from(place).unwrap_or(u16::MAX)
    }
}

/// One line of `CLUSTER NODES`.
struct NodeLine {
    address: Address,
    /// Its address in numbers, where `address` has a name instead.
    numeric: Option<Address>,
    epoch: u64,
    ranges: Vec<(u16, u16)>,
    has_failed: bool,
}

impl NodeLine {
    /// `None` for one that cannot be used.
    fn read(line: &str, asked: &Address, by_name: bool) -> Option<Self> {
        let mut fields = line.split(' ');
        let _id = fields.next()?;
        let address = fields.next()?;
        let flags = fields.next()?;
        let epoch = fields.nth(3)?.parse().ok()?;
        let _link_state = fields.next()?;
        if flags.split(',').any(|flag| matches!(flag, "noaddr" | "handshake")) {
            return None;
        }
        let has_failed = flags.split(',').any(|flag| matches!(flag, "fail" | "fail?"));
        let ranges = fields.filter_map(range).collect();
        let numeric = node_address(address, asked, false)?;
        let address = node_address(address, asked, by_name)?;
        let numeric = Some(numeric).filter(|numeric| *numeric != address);
        Some(Self { address, numeric, epoch, ranges, has_failed })
    }
}

/// `ip:port@bus` or `ip:port@bus,name`; a node that does not know its own address leaves it out.
fn node_address(text: &str, asked: &Address, by_name: bool) -> Option<Address> {
    let (text, name) = text.split_once(',').unwrap_or((text, ""));
    let name = name.split(',').next().unwrap_or_default();
    let (endpoint, _bus) = text.split_once('@').unwrap_or((text, ""));
    let (ip, port) = endpoint.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = match (ip, name, asked) {
        (_, name, _) if by_name && !name.is_empty() => name,
        ("", _, Address::Tcp { host, .. }) => host,
        ("", ..) => return None,
        (ip, ..) => ip,
    };
    Some(Address::tcp(host, port))
}

/// `7`, `0-5460`; not `[7->-id]`, which is a slot on the move.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Address {
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
    fn lines_are_read() {
        let mut map = SlotMap::default();
        assert!(map.learn(BEFORE, &asked(), false));
        assert_eq!(map.owner(0), Some(&asked()));
        assert_eq!(map.owner(7), Some(&asked()));
        assert_eq!(map.owner(100), Some(&node(7001)));
        assert_eq!(map.owner(101), None);
        assert_eq!(map.owner(16_383), Some(&node(7001)));
        assert_eq!(map.peers().count(), 3);
        assert!(map.peers().any(|peer| *peer == node(7002)));
        let mut by_name = SlotMap::default();
        by_name.learn(BEFORE, &asked(), true);
        let named = Address::tcp("db.example", 7002);
        assert!(by_name.peers().any(|peer| *peer == named));
        assert_eq!(by_name.known_as(&node(7002)), Some(&named));
        assert_eq!(by_name.known_as(&node(7001)), None);
        assert!(!SlotMap::default().learn("ERR something\n", &asked(), false));
    }

    #[test]
    fn a_master_that_failed_is_noticed_until_it_is_replaced() {
        let mut map = SlotMap::default();
        map.learn(&BEFORE.replace("7001@17001 master", "7001@17001 master,fail?"), &asked(), false);
        assert!(map.is_ailing());
        let after = "b2 10.0.0.1:7001@17001 master,fail - 0 1 2 disconnected
c3 10.0.0.1:7002@17002 master - 0 1 3 connected 100 200-16383
";
        map.learn(after, &asked(), false);
        assert!(!map.is_ailing());
    }

    #[test]
    fn a_later_claim_counts_and_an_earlier_one_does_not() {
        let mut map = SlotMap::default();
        map.learn(BEFORE, &asked(), false);
        let after = "c3 10.0.0.1:7002@17002 master - 0 1 3 connected 100 200-16383\n";
        map.learn(after, &asked(), false);
        assert_eq!(map.owner(100), Some(&node(7002)));
        // The old owner wakes up and knows of nothing.
        map.learn(BEFORE, &asked(), false);
        assert_eq!(map.owner(100), Some(&node(7002)));
        assert_eq!(map.owners().len(), 2);
    }

    #[test]
    fn a_slot_that_moved_stays_moved_until_something_newer_is_known() {
        let mut map = SlotMap::default();
        map.learn(BEFORE, &asked(), false);
        map.moved(5, &node(7009));
        assert_eq!(map.owner(5), Some(&node(7009)));
        assert_eq!(map.owner(6), Some(&asked()));
        map.moved(150, &node(7009));
        assert_eq!(map.owner(150), Some(&node(7009)));
        map.learn(&BEFORE.replace(" 1 connected 0-99", " 4 connected 0-99"), &asked(), false);
        assert_eq!(map.owner(5), Some(&asked()));
    }
}
