//! The least rule of each primitive: it is enough, and nothing in it is too much.

mod exercise;
mod scene;

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use libtest_mimic::Trial;
use redis::Value;
use redis::aio::MultiplexedConnection;
use turnlock::acl::{AclRule, Primitive};
use turnlock_testkit::{RedisServer, ServerProgram};

use crate::rig::ms;
use crate::store::Store;
use crate::trial_of;
use scene::{Patience, Scene};

/// The keys in which clients say who they are.
const CLIENTS: &str = "turnlock_client:*";

/// What it takes to find locks.
const FINDING: [&str; 10] =
    ["exists", "getrange", "hget", "hlen", "hrandfield", "hstrlen", "pttl", "scan", "type", "zcard"];

/// What all names of these cases match.
const NAMES: &str = "guarded:*";

/// How many servers are asked at a time. Most of the time is spent waiting for what does not happen.
const AT_ONCE: usize = 6;

/// How often a look may be repeated that failed before anything was refused, as on a busy machine.
const REPEATS: usize = 3;

/// How long until a client has done all that it does by itself: its connection is asked whether it is there, and what nobody
/// listens to any more is given up.
const BY_ITSELF: Duration = Duration::from_secs(20);

pub(crate) fn trials(missing: Option<&str>) -> impl Iterator<Item = Trial> {
    let page = trial_of("acl::the_page_has_the_rules", None, the_page_has_the_rules);
    let rules = Primitive::ALL.into_iter().map(move |primitive| {
        let title = format!("acl::{}::the_rule_is_enough_and_the_least", primitive.noun().replace(' ', "_"));
        trial_of(&title, missing.map(str::to_owned), move || the_rule_is_enough_and_the_least(primitive))
    });
    let finding = trial_of(
        "acl::finding::the_rule_is_enough_and_the_least",
        missing.map(str::to_owned),
        the_rule_for_finding_is_enough_and_the_least,
    );
    [page, finding].into_iter().chain(rules).chain(trials_elsewhere())
}

/// On servers of other programs: that the rule is enough.
fn trials_elsewhere() -> impl Iterator<Item = Trial> {
    let stores = Store::SERVERS.into_iter().filter(|store| *store != Store::Redis);
    stores.flat_map(|store| {
        Primitive::ALL.into_iter().map(move |primitive| {
            let noun = primitive.noun().replace(' ', "_");
            let title = format!("{}::acl::{noun}::the_rule_is_enough", store.name());
            trial_of(&title, store.missing(), move || the_rule_is_enough(store.program(), primitive))
        })
    })
}

async fn the_rule_is_enough(program: ServerProgram, primitive: Primitive) {
    assert_eq!(complaint_about(program, primitive, String::new(), None).await, None);
}

/// The page that people read has the rules as they are.
async fn the_page_has_the_rules() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    for primitive in Primitive::ALL {
        let rule = AclRule::new(&[primitive], "orders:*").to_string();
        assert!(page.lines().any(|line| line == rule), "the page lacks, of a {}:\n{rule}", primitive.noun());
    }
}

async fn the_rule_is_enough_and_the_least(primitive: Primitive) {
    let rule = AclRule::new(&[primitive], NAMES);
    let commands = rule.commands().iter().map(|allowed| (format!("+{}", allowed.name), allowed.without));
    let keys = rule.keys().iter().map(|key| (format!("~{key}"), helps(key)));
    let channels = rule.channels().iter().map(|channel| (format!("&{channel}"), None));
    let questions: Vec<_> = std::iter::once((String::new(), None))
        .chain(commands)
        .chain(keys)
        .chain(channels)
        .map(|(part, without)| complaint_about(ServerProgram::Installed, primitive, part, without))
        .collect();
    let complaints = futures_util::stream::iter(questions).buffer_unordered(AT_ONCE);
    let complaints: Vec<_> = complaints.collect::<Vec<_>>().await.into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// The same for what it takes to find locks, beside what they need themselves.
async fn the_rule_for_finding_is_enough_and_the_least() {
    // Locks need some of them, too; but here they are another's.
    let questions = [""].into_iter().chain(FINDING).map(|name| async move {
        let server = RedisServer::start().await;
        let words = AclRule::new(&Primitive::ALL, NAMES).with_finding().for_user("least").to_string();
        let part = format!("+{name}");
        assert!(name.is_empty() || words.split(' ').any(|word| word == part), "{name} is not in the rule");
        let words: Vec<_> = words.split(' ').skip(1).filter(|word| *word != part).collect();
        server.ask::<()>(&[&["ACL"], &words[..]].concat()).await.expect("a good rule");
        match (exercise::finding(&server).await, name) {
            (Err(error), "") => Some(format!("with all of the rule: {error}")),
            (Ok(()), name) if !name.is_empty() => Some(format!("{name} can be left out")),
            _ => None,
        }
    });
    let complaints = futures_util::stream::iter(questions.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
    let complaints: Vec<_> = complaints.collect::<Vec<_>>().await.into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// What is lost without a key, where all else goes on.
fn helps(key: &str) -> Option<&'static str> {
    (key == CLIENTS).then_some("others do not learn who this client is")
}

/// Why a part of the rule does not belong there, or not as it is said. The part is empty for none: then, why the rule is not
/// enough.
async fn complaint_about(
    program: ServerProgram,
    primitive: Primitive,
    part: String,
    without: Option<&'static str>,
) -> Option<String> {
    // What only helps is refused in silence, sooner or later.
    let awaited = without.map(|_| part.trim_start_matches(['+', '~']).trim_end_matches('*'));
    let is_to_fail = !part.is_empty() && without.is_none();
    let patience = if is_to_fail { Patience::Short } else { Patience::Long };
    let (mut outcome, mut refused) = exercise_without(program, primitive, &part, awaited, patience).await;
    for _ in 0..REPEATS {
        if is_to_fail && outcome.is_err() && refused.is_empty() {
            (outcome, refused) = exercise_without(program, primitive, &part, awaited, patience).await;
        }
    }
    match (outcome, without) {
        (Ok(()), None) if part.is_empty() => {
            (!refused.is_empty()).then(|| format!("refused with all of the rule: {refused:?}"))
        }
        (Err(error), None) if part.is_empty() => Some(format!("with all of the rule: {error}; {refused:?}")),
        (Ok(()), None) => Some(format!("{part} can be left out")),
        (Err(error), Some(without)) => {
            Some(format!("without {part} it is said that {without}; in truth: {error}"))
        }
        (Ok(()), Some(_)) if refused.is_empty() => Some(format!("{part} is not used")),
        // The server writes down what it refuses, of every sort: commands, keys and channels, in scripts too.
        (Err(error), None) if refused.is_empty() => {
            Some(format!("without {part} nothing is refused, and yet: {error}"))
        }
        _ => None,
    }
}

/// What a user with the rule but for one part of it comes to, and what was refused to it. A command that is `awaited` may be
/// tried later than the rest.
async fn exercise_without(
    program: ServerProgram,
    primitive: Primitive,
    part: &str,
    awaited: Option<&str>,
    patience: Patience,
) -> (Result<(), String>, Vec<String>) {
    let server = RedisServer::start_of(program).await;
    let mut admin = server.client().await;
    let rule = AclRule::new(&[primitive], NAMES).for_user("least").to_string();
    let words = rule.split(' ').skip(1).filter(|word| *word != part).collect::<Vec<_>>();
    assert_eq!(words.len() + 1 + usize::from(!part.is_empty()), rule.split(' ').count());
    let _: () = redis::cmd("ACL").arg(words).query_async(&mut admin).await.expect("a good rule");

    let scene = match Scene::new(&server, "least", patience).await {
        Ok(scene) => scene,
        Err(error) => return (Err(error), refusals(&mut admin).await),
    };
    let limit = patience.limit();
    let outcome = tokio::time::timeout(limit, exercise::of(primitive, &scene)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(format!("not done within {limit:?}")));
    if let Some(command) = awaited {
        let begun = Instant::now();
        while begun.elapsed() < BY_ITSELF
            && !refusals(&mut admin).await.iter().any(|refused| refused.starts_with(command))
        {
            tokio::time::sleep(ms(20)).await;
        }
    } else if part.is_empty() {
        // Enough for the connection of messages to be asked whether it is there, and for a channel to be given up.
        tokio::time::sleep(ms(8_500)).await;
    }
    (outcome, refusals(&mut admin).await)
}

/// What the server has refused: commands, keys and channels by name.
async fn refusals(admin: &mut MultiplexedConnection) -> Vec<String> {
    let log: Vec<Vec<Value>> = redis::cmd("ACL").arg("LOG").query_async(admin).await.expect("an answer");
    let object = |entry: Vec<Value>| {
        let place = entry.iter().position(|field| *field == Value::BulkString(b"object".into()))?;
        redis::from_redis_value(entry.get(place + 1)?.clone()).ok()
    };
    log.into_iter().filter_map(object).collect()
}
