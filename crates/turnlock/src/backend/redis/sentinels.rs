use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join3;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use turnlock_core::Moment;

use super::access::Access;
use super::address::Address;
use super::common::Common;
use super::failure;
use super::link::{Link, Outcome, Purpose};
use super::place::{Place, Stay};
use super::scripts::Dialect;
use super::sentinel_report::{self, SentinelReport};
use crate::backend::{Failure, FailureKind};
use crate::clock;

/// How long one sentinel has to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often those who are asked may name others, who are then asked too.
const ROUNDS: usize = 3;

/// Those who say which server is the master.
///
/// A majority of them is asked, and the highest epoch counts: a sentinel that was cut off may still name the old master,
/// but not with a higher epoch. Once the client has learnt of a fail-over, nothing brings it back to what was before.
pub(super) struct Sentinels {
    master: String,
    pub(super) common: Arc<Common>,
    /// How many were named by the user.
    configured: usize,
    links: Mutex<BTreeMap<String, (Address, Arc<Link>)>>,
    /// Held while they are asked: when that began, and what came of it.
    asking: tokio::sync::Mutex<Option<(Moment, Result<Stay, Failure>)>>,
    pub(super) known: watch::Sender<Option<Known>>,
    /// Somebody has reason to ask again.
    pub(super) look: Arc<Notify>,
}

/// The master as it was last heard of.
#[derive(Clone, Debug)]
pub(super) struct Known {
    stay: Stay,
    /// The sentinels' own count of fail-overs.
    config_epoch: u64,
    /// Where it was before, since the epoch in which it came here.
    left: Vec<Address>,
}

impl Known {
    /// Whether a report tells of a move. Of two that have the same epoch, the one that was heard first was right at that
    /// time, so nothing leads back to where the master was before.
    fn is_outdone_by(&self, report: &SentinelReport) -> bool {
        report.address != self.stay.address
            && (report.config_epoch > self.config_epoch
                || report.config_epoch == self.config_epoch && !self.left.contains(&report.address))
    }
}

/// What the sentinels said when they were asked.
#[derive(Default)]
struct Replies {
    reports: Vec<(Address, SentinelReport)>,
    /// Sentinels who do not know the master's name.
    ignorant: usize,
    denial: Option<Failure>,
    silent: Vec<String>,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, master: String, access: Access) -> Self {
        let common = Arc::new(Common::new(access, Dialect::Alone));
        let sentinels = Self {
            master,
            common,
            configured: addresses.len(),
            links: Mutex::default(),
            asking: tokio::sync::Mutex::new(None),
            known: watch::Sender::new(None),
            look: Arc::default(),
        };
        sentinels.meet(addresses);
        sentinels
    }

    /// Where the master is, by the word of a majority.
    pub(super) async fn find(&self) -> Result<Stay, Failure> {
        let asked = clock::now();
        let mut last = self.asking.lock().await;
        if let Some((began, found)) = &*last
            && *began > asked
        {
            return found.clone();
        }
        let began = clock::now();
        let found = self.ask_a_majority().await.map(|report| self.adopt(report));
        *last = Some((began, found.clone()));
        found
    }

    /// Rises with every move of the master.
    pub(super) fn epoch(&self) -> u64 {
        self.known.borrow().as_ref().map_or(0, |known| known.stay.epoch)
    }

    pub(super) async fn rises_above(&self, epoch: u64) {
        let mut known = self.known.subscribe();
        let is_above = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.stay.epoch > epoch);
        // Fails only when the sender is gone, which is here.
        let _ = known.wait_for(is_above).await;
    }

    /// All that are known by now.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.links().values().map(|(address, _)| address.clone()).collect()
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<String, (Address, Arc<Link>)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes new ones in. Whether there were any.
    fn meet(&self, addresses: Vec<Address>) -> bool {
        let mut links = self.links();
        let before = links.len();
        for address in addresses {
            links.entry(address.to_string()).or_insert_with(|| {
                let link = Link::new(&self.common, Place::Fixed(address.clone()), Purpose::Inquiry);
                (address, Arc::new(link))
            });
        }
        links.len() > before
    }

    /// Takes a report for the newest, unless something newer is known. What is known then.
    fn adopt(&self, report: SentinelReport) -> Stay {
        let first = Known {
            stay: Stay { address: report.address.clone(), epoch: 1 },
            config_epoch: report.config_epoch,
            left: Vec::new(),
        };
        let mut stay = first.stay.clone();
        self.known.send_if_modified(|known| {
            let Some(known) = known else {
                *known = Some(first);
                return true;
            };
            let is_news = known.is_outdone_by(&report);
            if is_news {
                tracing::info!(master = %self.master, address = %report.address, "the master is here now");
                let epoch = known.stay.epoch + 1;
                let before = std::mem::replace(&mut known.stay, Stay { address: report.address, epoch });
                if report.config_epoch > known.config_epoch {
                    known.left.clear();
                }
                known.left.push(before.address);
            } else if report.config_epoch < known.config_epoch {
                tracing::warn!(
                    master = %self.master, here = %known.stay.address, epoch = known.config_epoch,
                    there = %report.address, told = report.config_epoch,
                    "the sentinels tell of an earlier time, which is not believed"
                );
            }
            known.config_epoch = known.config_epoch.max(report.config_epoch);
            stay = known.stay.clone();
            is_news
        });
        stay
    }

    async fn ask_a_majority(&self) -> Result<SentinelReport, Failure> {
        let mut replies = Replies::default();
        for _ in 0..ROUNDS {
            replies = self.ask_all().await;
            if self.is_majority(&replies.reports) {
                break;
            }
            // Those who answered may know of others.
            let mut is_grown = false;
            for (address, _) in &replies.reports {
                is_grown |= self.meet(self.ask_for_others(address).await);
            }
            if !is_grown {
                break;
            }
        }
        if !self.is_majority(&replies.reports) {
            return Err(self.no_majority(replies));
        }
        let newest = replies.reports.into_iter().map(|(_, report)| report);
        newest.max_by_key(|report| report.config_epoch).ok_or_else(|| self.no_majority(Replies::default()))
    }

    fn is_majority(&self, reports: &[(Address, SentinelReport)]) -> bool {
        witnesses(reports) > self.all_there_are(reports) / 2
    }

    fn all_there_are(&self, reports: &[(Address, SentinelReport)]) -> usize {
        let known_to_them = reports.iter().map(|(_, report)| report.others + 1).max().unwrap_or(0);
        known_to_them.max(self.configured)
    }

    /// Asks all at once, until a majority has answered or there is nobody left to wait for.
    async fn ask_all(&self) -> Replies {
        let links: Vec<_> = self.links().values().cloned().collect();
        let mut questions: FuturesUnordered<_> =
            links.into_iter().map(|(address, link)| self.ask_one(address, link)).collect();
        let mut replies = Replies::default();
        while let Some((address, reply)) = questions.next().await {
            match reply {
                Ok(Some(report)) => replies.reports.push((address, report)),
                Ok(None) => replies.ignorant += 1,
                Err(failure) => replies.note_failure(&address, failure),
            }
            if self.is_majority(&replies.reports) {
                break;
            }
        }
        replies
    }

    /// What one sentinel says; nothing, if it does not know the master.
    async fn ask_one(
        &self,
        address: Address,
        link: Arc<Link>,
    ) -> (Address, Result<Option<SentinelReport>, Failure>) {
        let ask = async {
            let cmds = [
                sentinel_report::question("MASTER", &self.master),
                sentinel_report::question("GET-MASTER-ADDR-BY-NAME", &self.master),
                sentinel_report::who_are_you(),
            ];
            // On one connection, so in this order.
            link.wire().await?;
            let [master, place, id] = cmds.each_ref().map(|cmd| link.command(cmd, PATIENCE));
            let (master, place, id) = join3(master, place, id).await;
            let (Outcome::Answered(master, _), Outcome::Answered(place, _)) = (match (master?, place?) {
                (Outcome::Refused(error), _) | (_, Outcome::Refused(error)) => {
                    let is_unknown = error.detail().is_some_and(|text| text.contains("No such master"));
                    return if is_unknown { Ok(None) } else { Err(failure::not_let_in(&address, error)) };
                }
                (Outcome::Unanswered(failure), _) | (_, Outcome::Unanswered(failure)) => return Err(failure),
                answered => answered,
            }) else {
                return Err(failure::unavailable("gave no answer".to_owned()));
            };
            let witness = match id {
                Ok(Outcome::Answered(id, _)) => sentinel_report::text(&id),
                _ => None,
            };
            let witness = witness.unwrap_or_else(|| address.to_string());
            match SentinelReport::read(witness, &master, &place) {
                Some(report) => Ok(Some(report)),
                None => Err(failure::unavailable("gave an answer that is none".to_owned())),
            }
        };
        let reply = tokio::time::timeout(PATIENCE, ask).await;
        let late = || Err(failure::unavailable(format!("did not answer within {PATIENCE:?}")));
        (address.clone(), reply.unwrap_or_else(|_| late()))
    }

    async fn ask_for_others(&self, address: &Address) -> Vec<Address> {
        let link = self.links().get(&address.to_string()).map(|(_, link)| Arc::clone(link));
        let Some(link) = link else { return Vec::new() };
        let question = sentinel_report::question("SENTINELS", &self.master);
        match tokio::time::timeout(PATIENCE, link.command(&question, PATIENCE)).await {
            Ok(Ok(Outcome::Answered(value, _))) => sentinel_report::others(&value),
            _ => Vec::new(),
        }
    }

    fn no_majority(&self, replies: Replies) -> Failure {
        if replies.reports.is_empty() && replies.ignorant > 0 {
            let name = &self.master;
            return failure::unavailable(format!("the sentinels know no master of the name {name:?}"));
        }
        if let Some(denial) = replies.denial {
            return denial;
        }
        let (answered, all) = (witnesses(&replies.reports), self.all_there_are(&replies.reports));
        let silent = replies.silent.join("; ");
        failure::unavailable(format!(
            "{answered} of {all} sentinels have named the master, which is no majority: {silent}"
        ))
    }
}

/// How many sentinels have answered: one that was asked at two addresses is one.
fn witnesses(reports: &[(Address, SentinelReport)]) -> usize {
    let ids: BTreeSet<_> = reports.iter().map(|(_, report)| &report.witness).collect();
    ids.len()
}

impl Replies {
    fn note_failure(&mut self, address: &Address, failure: Failure) {
        if matches!(failure.kind, FailureKind::Denied(_)) {
            self.denial = Some(failure);
        } else {
            self.silent.push(format!("{address}: {failure}"));
        }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the master {:?}", self.master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(port: u16, config_epoch: u64, others: usize) -> SentinelReport {
        by("somebody", port, config_epoch, others)
    }

    fn by(witness: &str, port: u16, config_epoch: u64, others: usize) -> SentinelReport {
        let address = Address::tcp("127.0.0.1", port);
        SentinelReport { witness: witness.to_owned(), address, config_epoch, others }
    }

    fn three() -> Sentinels {
        let addresses = (1..=3).map(|port| Address::tcp("127.0.0.1", port)).collect();
        Sentinels::new(addresses, "m".to_owned(), Access::for_tests())
    }

    #[tokio::test]
    async fn an_earlier_epoch_brings_nobody_back() {
        let sentinels = three();
        let first = sentinels.adopt(report(7000, 1, 2));
        let second = sentinels.adopt(report(7001, 2, 2));
        assert!(second.epoch > first.epoch);
        assert_eq!(sentinels.adopt(report(7000, 1, 2)), second);
        assert_eq!(sentinels.adopt(report(7001, 3, 2)), second);
        // What is older than the latest epoch, although newer than the last move.
        assert_eq!(sentinels.adopt(report(7000, 2, 2)), second);
        // One that leads a fail-over has the new epoch, and for a while the old address.
        assert_eq!(sentinels.adopt(report(7000, 3, 2)), second);
        let back = sentinels.adopt(report(7000, 4, 2));
        assert!(back.epoch > second.epoch && back.address == first.address);
    }

    #[tokio::test]
    async fn a_majority_is_of_all_that_anybody_knows() {
        let sentinels = three();
        let from = |port| Address::tcp("127.0.0.1", port);
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2))]));
        assert!(sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2)), (from(2), by("b", 7000, 1, 2))]));
        // One of two knows of five.
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2)), (from(2), by("b", 7000, 1, 4))]));
        // One that has two addresses is still one.
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2)), (from(2), by("a", 7000, 1, 2))]));
    }
}
