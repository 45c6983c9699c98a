//! A cluster as one of its nodes sees it.

use std::ops::RangeInclusive;

use redis::RedisResult;

use crate::RedisServer;

/// The reply to `CLUSTER NODES`: one line per known node.
#[derive(Debug)]
pub(super) struct ClusterView(pub(super) Vec<Member>);

/// A node as another node, or itself, sees it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) port: u16,
    flags: Vec<String>,
    /// The id of its master, if it is a replica.
    pub(super) master: Option<String>,
    /// If two nodes claim a slot, the higher epoch wins.
    pub(super) epoch: u64,
    is_connected: bool,
    slots: Vec<RangeInclusive<u16>>,
}

impl ClusterView {
    pub(super) async fn of(node: &RedisServer) -> RedisResult<Self> {
        Ok(Self::parse(&node.probe::<String>(&["CLUSTER", "NODES"]).await?))
    }

    /// Returns the node that has this slot.
    pub(super) fn owner_of(&self, slot: u16) -> Option<&Member> {
        self.0.iter().find(|member| member.has(slot))
    }

    /// Returns the node with this port.
    pub(super) fn at(&self, port: u16) -> Option<&Member> {
        self.0.iter().find(|member| member.port == port)
    }

    /// Returns the slots of each port, for comparisons.
    pub(super) fn layout(&self) -> Vec<(u16, Vec<RangeInclusive<u16>>)> {
        let mut layout: Vec<_> = self.0.iter().map(|member| (member.port, member.slots.clone())).collect();
        layout.sort_by_key(|(port, _)| *port);
        layout
    }

    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(Member::parse).collect())
    }
}

impl Member {
    pub(super) fn is_master(&self) -> bool {
        self.has_flag("master")
    }

    /// Returns `true` if the node is connected and has no flag of a failure.
    pub(super) fn is_healthy(&self) -> bool {
        let bad = ["fail?", "fail", "handshake", "noaddr"];
        // A node has no connection to itself.
        (self.is_connected || self.has_flag("myself")) && !bad.iter().any(|flag| self.has_flag(flag))
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Parses `ID HOST:PORT@BUS[,NAME] FLAGS MASTER PING PONG EPOCH LINK SLOT…`. Migrating slots are in
    /// brackets.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (_, port) = words.nth(1)?.split_once('@')?.0.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let flags = words.next()?.split(',').map(str::to_owned).collect();
        let master = Some(words.next()?.to_owned()).filter(|master| master != "-");
        let epoch = words.nth(2)?.parse().ok()?;
        let is_connected = words.next()? == "connected";
        let slots = words.filter_map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        Some(Self { port, flags, master, epoch, is_connected, slots: slots.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::ClusterView;

    #[test]
    fn lines_of_cluster_nodes_are_parsed() {
        let view = ClusterView::parse(
            "aa 127.0.0.1:7000@17000 myself,master - 0 0 7 connected 0-5 9 [9->-bb]\n\
             bb 127.0.0.1:7001@17001,name slave,fail? aa 0 1 7 disconnected\n",
        );
        let [master, replica] = &*view.0 else { panic!("two nodes") };
        assert!(master.is_master() && master.is_healthy() && master.has(5) && !master.has(6));
        assert_eq!((master.port, master.epoch), (7000, 7));
        assert!(!replica.is_master() && !replica.is_healthy());
        assert_eq!(replica.master.as_deref(), Some("aa"));
        assert_eq!(view.owner_of(9).expect("an owner").port, 7000);
    }
}
