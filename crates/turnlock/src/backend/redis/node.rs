use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Value;

use super::address::Address;
use super::arrival::{Arrival, Delivery, Landing};
use super::common::Common;
use super::convoy::Convoy;
use super::failure;
use super::lanes::Lanes;
use super::link::{Link, Outcome, Purpose};
use super::place::Place;
use super::script_call::ScriptCall;
use super::subscriber::{Orphanage, Subscriber};
use crate::backend::{Failure, FailureKind};

/// One server that has locks: a connection for commands, another for messages, and two for each number of replicas that
/// must acknowledge something.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) common: Arc<Common>,
    place: Place,
    pub(super) link: Arc<Link>,
    /// In a cluster there is none: only steps of one slot may share a call there.
    convoy: Option<Convoy>,
    lanes: Lanes,
    subscriber: OnceLock<Subscriber>,
    orphanage: Option<Orphanage>,
}

impl Node {
    /// A node that is not connected to yet.
    pub(super) fn new(common: &Arc<Common>, place: Place, orphanage: Option<Orphanage>) -> Self {
        let link = Arc::new(Link::new(common, place.clone(), Purpose::Scripts));
        let convoy = (!common.dialect.is_in_cluster()).then(|| Convoy::new(&link));
        let lanes = Lanes::new(common, &place);
        Self {
            common: Arc::clone(common),
            place,
            link,
            convoy,
            lanes,
            subscriber: OnceLock::new(),
            orphanage,
        }
    }

    /// Connects both ways.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.link.wire().await?;
        let subscriber = Subscriber::connect(&self.common, &self.place, &self.link).await?;
        let _ = self.subscriber.set(subscriber);
        Ok(())
    }

    /// The one who listens there, from the first time it is asked for.
    pub(super) fn subscriber(&self) -> &Subscriber {
        self.subscriber.get_or_init(|| {
            Subscriber::start(&self.common, &self.place, &self.link, self.orphanage.clone(), None)
        })
    }

    /// Where it is now.
    pub(super) async fn address(&self) -> Result<Address, Failure> {
        Ok(self.place.find().await?.address)
    }

    /// Runs a script, on a server that has all keys.
    pub(super) async fn run(&self, call: &ScriptCall, delivery: Delivery) -> Result<Arrival, Failure> {
        let landing = self.ask(call, false, delivery).await?;
        self.judge(landing, call, delivery).await
    }

    /// Makes sure that there is the connection that a call goes over.
    pub(super) async fn connect_for(&self, delivery: Delivery) -> Result<(), Failure> {
        match delivery.replicas {
            0 => self.link.wire_within(delivery.limit).await.map(drop),
            _ => self.lanes.of(delivery).link.wire_within(delivery.limit).await.map(drop),
        }
    }

    /// Runs a script; `asking` as for [`Link::ask`].
    pub(super) async fn ask(
        &self,
        call: &ScriptCall,
        asking: bool,
        delivery: Delivery,
    ) -> Result<Landing, Failure> {
        let Delivery { limit, replicas, .. } = delivery;
        if replicas == 0 {
            let outcome = match &self.convoy {
                Some(convoy) if call.goes_in_convoy() => convoy.run(call, limit).await?,
                _ => self.link.ask(call, asking, limit).await?,
            };
            return Ok(Landing { outcome, acknowledged: None });
        }
        Box::pin(self.lanes.of(delivery).run(call.clone(), asking, delivery)).await
    }

    /// What it means for the step, what became of a call.
    pub(super) async fn judge(
        &self,
        landing: Landing,
        call: &ScriptCall,
        delivery: Delivery,
    ) -> Result<Arrival, Failure> {
        let Delivery { limit, replicas: wanted, .. } = delivery;
        match landing.outcome {
            Outcome::Answered(value, sent) => {
                Ok(Arrival::new((value, sent), landing.acknowledged, &call.lock, wanted))
            }
            Outcome::Refused(error) if failure::is_wrong_type(&error) => {
                Err(Box::pin(self.foreign_key(call, limit)).await)
            }
            Outcome::Refused(error) if error.code() == Some("CORRUPT") => {
                let found = error.detail().unwrap_or("something else").to_owned();
                Err(Failure::refused(FailureKind::Corrupt { key: call.lock.key().to_owned(), found }))
            }
            Outcome::Refused(error)
                if error.redirect_node().is_some() && !self.common.dialect.is_in_cluster() =>
            {
                let text = format!("a node of a cluster ({error}) as a server alone: write redis+cluster://");
                Err(Failure::refused(FailureKind::Unsupported(text)))
            }
            Outcome::Refused(error) => Err(failure::from_error(error, None)),
            Outcome::Unanswered(failure) => Err(failure),
        }
    }

    async fn foreign_key(&self, call: &ScriptCall, limit: Duration) -> Failure {
        let key = call.lock.key().to_owned();
        let mut cmd = redis::cmd("TYPE");
        cmd.arg(&key);
        let found = match self.link.command(&cmd, limit).await {
            Ok(Outcome::Answered(Value::SimpleString(kind), _)) => format!("a value of type {kind}"),
            _ => "a value of another type".to_owned(),
        };
        Failure::refused(FailureKind::Corrupt { key, found })
    }
}
