//! The replication state of a server.

use redis::RedisResult;

use crate::RedisServer;

/// The reply to `INFO replication`, in part.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// Whether the server's own role is master.
    pub(super) is_master: bool,
    /// The ports of its replicas that are up to date.
    pub(super) online: Vec<u16>,
    /// The port of its master, if the connection to it is up.
    pub(super) follows: Option<u16>,
}

impl Replication {
    pub(super) async fn of(server: &RedisServer) -> RedisResult<Self> {
        Ok(Self::parse(&server.probe::<String>(&["INFO", "replication"]).await?))
    }

    /// Returns `true` if `master` has exactly these replicas, and they are connected to a master.
    pub(super) async fn is_complete(master: &RedisServer, replicas: &[&RedisServer]) -> bool {
        let Ok(replication) = Self::of(master).await else { return false };
        let is_online = |replica: &&RedisServer| replication.online.contains(&replica.port());
        if !replication.is_master
            || replication.online.len() != replicas.len()
            || !replicas.iter().all(is_online)
        {
            return false;
        }
        for replica in replicas {
            if !Self::of(replica).await.is_ok_and(|replication| replication.follows.is_some()) {
                return false;
            }
        }
        true
    }

    fn parse(info: &str) -> Self {
        let mut replication = Self::default();
        let (mut port, mut is_up) = (None, false);
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "role" => replication.is_master = value == "master",
                "master_port" => port = value.parse().ok(),
                "master_link_status" => is_up = value == "up",
                _ if name.starts_with("slave") && value.contains("state=online") => {
                    let port = value.split(',').find_map(|field| field.strip_prefix("port="));
                    replication.online.extend(port.and_then(|port| port.parse::<u16>().ok()));
                }
                _ => {}
            }
        }
        replication.follows = port.filter(|_| is_up);
        replication
    }
}

#[cfg(test)]
mod tests {
    use super::Replication;

    #[test]
    fn masters_and_replicas_are_distinguished() {
        let master = Replication::parse(
            "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
             slave0:ip=127.0.0.1,port=7001,state=online,offset=14,lag=0\r\n\
             slave1:ip=127.0.0.1,port=7002,state=wait_bgsave,offset=0,lag=0\r\n",
        );
        assert_eq!((master.is_master, master.online, master.follows), (true, vec![7001], None));
        let up = "role:slave\r\nmaster_port:7000\r\nmaster_link_status:up\r\nslave_read_only:1\r\n";
        let replica = Replication::parse(up);
        assert_eq!((replica.is_master, replica.online, replica.follows), (false, vec![], Some(7000)));
        assert_eq!(Replication::parse(&up.replace(":up", ":down")).follows, None);
    }
}
