//! The ACL rule of each primitive is sufficient and minimal.

mod acl_fixture;
mod exercise;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use libtest_mimic::Trial;
use redis::Value;
use redis::aio::MultiplexedConnection;
use turnlock::acl::{AclRule, Primitive};
use turnlock_testkit::{RedisServer, ServerProgram};

use crate::fixture::ms;
use crate::store_kind::StoreKind;
use crate::trial_of;
use acl_fixture::{AclFixture, Limits};

/// The keys of client records.
const CLIENTS: &str = "turnlock_client:*";

/// The commands that `find` needs.
const FINDING: [&str; 10] =
    ["exists", "getrange", "hget", "hlen", "hrandfield", "hstrlen", "pttl", "scan", "type", "zcard"];

/// The number of users so far.
static USERS: AtomicU32 = AtomicU32::new(0);

/// Matches the names of these cases.
const NAMES: &str = "guarded:*";

/// Exercises that run concurrently. They mostly wait for steps that do not happen.
const CONCURRENCY: usize = 6;

/// Repeats of an exercise that failed before the server refused a command, as on a busy machine.
const REPEATS: usize = 3;

/// Time limit of the background work of a client: checking its connection and unsubscribing from unused
/// channels.
const BACKGROUND_WORK: Duration = Duration::from_secs(20);

pub(crate) fn trials(missing: Option<&str>) -> impl Iterator<Item = Trial> {
    let documentation =
        trial_of("acl::the_documentation_lists_the_rules", None, the_documentation_lists_the_rules);
    let rules = Primitive::ALL.into_iter().map(move |primitive| {
        let title =
            format!("acl::{}::the_rule_is_sufficient_and_minimal", primitive.noun().replace(' ', "_"));
        trial_of(&title, missing.map(str::to_owned), move || the_rule_is_sufficient_and_minimal(primitive))
    });
    let finding = trial_of(
        "acl::finding::the_rule_is_sufficient_and_minimal",
        missing.map(str::to_owned),
        the_rule_for_finding_is_sufficient_and_minimal,
    );
    [documentation, finding].into_iter().chain(rules).chain(trials_on_other_servers())
}

/// Returns the trials that the rule is sufficient on other server programs.
fn trials_on_other_servers() -> impl Iterator<Item = Trial> {
    let stores = StoreKind::SERVERS.into_iter().filter(|store| *store != StoreKind::Redis);
    stores.flat_map(|store| {
        Primitive::ALL.into_iter().map(move |primitive| {
            let noun = primitive.noun().replace(' ', "_");
            let title = format!("{}::acl::{noun}::the_rule_is_sufficient", store.name());
            trial_of(&title, store.missing(), move || the_rule_is_sufficient(store.program(), primitive))
        })
    })
}

async fn the_rule_is_sufficient(program: ServerProgram, primitive: Primitive) {
    assert_eq!(check_rule_without(program, primitive, String::new(), None).await, None);
}

/// The rules in the documentation are the current ones.
async fn the_documentation_lists_the_rules() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
    let page = std::fs::read_to_string(page).expect("the page exists");
    for primitive in Primitive::ALL {
        let rule = AclRule::new(&[primitive], "orders:*").to_string();
        assert!(
            page.lines().any(|line| line == rule),
            "the page lacks the rule of a {}:\n{rule}",
            primitive.noun()
        );
    }
}

async fn the_rule_is_sufficient_and_minimal(primitive: Primitive) {
    let rule = AclRule::new(&[primitive], NAMES);
    let commands = rule.commands().iter().map(|allowed| (format!("+{}", allowed.name), allowed.if_missing));
    let keys = rule.keys().iter().map(|key| (format!("~{key}"), optional_key(key)));
    let channels = rule.channels().iter().map(|channel| (format!("&{channel}"), None));
    let checks: Vec<_> = std::iter::once((String::new(), None))
        .chain(commands)
        .chain(keys)
        .chain(channels)
        .map(|(part, without)| check_rule_without(ServerProgram::Installed, primitive, part, without))
        .collect();
    let errors = futures_util::stream::iter(checks).buffer_unordered(CONCURRENCY);
    let errors: Vec<_> = errors.collect::<Vec<_>>().await.into_iter().flatten().collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Checks the commands that `find` needs in addition to those of the locks.
async fn the_rule_for_finding_is_sufficient_and_minimal() {
    // Locks need some of these commands, too. Here another user holds the locks.
    let checks = [""].into_iter().chain(FINDING).map(|name| async move {
        let server = RedisServer::start().await;
        let words = AclRule::new(&Primitive::ALL, NAMES).with_find().for_user("least").to_string();
        let part = format!("+{name}");
        assert!(name.is_empty() || words.split(' ').any(|word| word == part), "{name} is not in the rule");
        let words: Vec<_> = words.split(' ').skip(1).filter(|word| *word != part).collect();
        server.query::<()>(&[&["ACL"], &words[..]].concat()).await.expect("a valid rule");
        match (exercise::finding(&server).await, name) {
            (Err(error), "") => Some(format!("with the complete rule: {error}")),
            (Ok(()), name) if !name.is_empty() => Some(format!("{name} is not needed")),
            _ => None,
        }
    });
    let errors = futures_util::stream::iter(checks.collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
    let errors: Vec<_> = errors.collect::<Vec<_>>().await.into_iter().flatten().collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Returns the consequence of a missing right to a key that is optional.
fn optional_key(key: &str) -> Option<&'static str> {
    match key {
        CLIENTS => Some("other clients cannot identify this client"),
        "turnlock_waits" => Some("waits are not announced"),
        _ => None,
    }
}

/// Checks the rule without one part, and returns an error if the part is not needed or `without` is wrong.
///
/// `without` is the consequence of an optional part. If `part` is empty, checks that the complete rule is
/// sufficient.
async fn check_rule_without(
    program: ServerProgram,
    primitive: Primitive,
    part: String,
    without: Option<&'static str>,
) -> Option<String> {
    // The refusal of an optional part is no error, and may come later.
    let awaited = without.map(|_| part.trim_start_matches(['+', '~']).trim_end_matches('*'));
    let must_fail = !part.is_empty() && without.is_none();
    let limits = if must_fail { Limits::Short } else { Limits::Long };
    let (mut outcome, mut refused) = exercise_without(program, primitive, &part, awaited, limits).await;
    for _ in 0..REPEATS {
        if must_fail && outcome.is_err() && refused.is_empty() {
            (outcome, refused) = exercise_without(program, primitive, &part, awaited, limits).await;
        }
    }
    match (outcome, without) {
        (Ok(()), None) if part.is_empty() => {
            (!refused.is_empty()).then(|| format!("refused with the complete rule: {refused:?}"))
        }
        (Err(error), None) if part.is_empty() => {
            Some(format!("with the complete rule: {error}; {refused:?}"))
        }
        (Ok(()), None) => Some(format!("{part} is not needed")),
        (Err(error), Some(without)) => Some(format!("documented without {part}: {without}; actual: {error}")),
        (Ok(()), Some(_)) if refused.is_empty() => Some(format!("{part} is not used")),
        // The server logs every refused command, key and channel, also those in scripts.
        (Err(error), None) if refused.is_empty() => {
            Some(format!("without {part} nothing is refused, but: {error}"))
        }
        _ => None,
    }
}

/// Runs the exercise as a user without one part of the rule. Returns its outcome and what the server refused.
///
/// The refusal of `awaited` may come later than the end of the exercise.
async fn exercise_without(
    program: ServerProgram,
    primitive: Primitive,
    part: &str,
    awaited: Option<&str>,
    limits: Limits,
) -> (Result<(), String>, Vec<String>) {
    let server = RedisServer::start_of(program).await;
    let mut admin = server.client().await;
    // A client of another case that reconnects may meet this server on the port of its own.
    let user = format!("least-{}", USERS.fetch_add(1, Ordering::Relaxed));
    let rule = AclRule::new(&[primitive], NAMES).for_user(&user).to_string();
    let words = rule.split(' ').skip(1).filter(|word| *word != part).collect::<Vec<_>>();
    assert_eq!(words.len() + 1 + usize::from(!part.is_empty()), rule.split(' ').count());
    let _: () = redis::cmd("ACL").arg(words).query_async(&mut admin).await.expect("a valid rule");

    let fixture = match AclFixture::new(&server, &user, limits).await {
        Ok(fixture) => fixture,
        Err(error) => return (Err(error), refusals(&mut admin, &user).await),
    };
    let limit = limits.total();
    let outcome = tokio::time::timeout(limit, exercise::run(primitive, &fixture)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(format!("not done within {limit:?}")));
    if let Some(command) = awaited {
        let begun = Instant::now();
        while begun.elapsed() < BACKGROUND_WORK
            && !refusals(&mut admin, &user).await.iter().any(|refused| refused.starts_with(command))
        {
            tokio::time::sleep(ms(20)).await;
        }
    } else if part.is_empty() {
        // Long enough for a check of the pub/sub connection and for an unsubscribe.
        tokio::time::sleep(ms(8_500)).await;
    }
    (outcome, refusals(&mut admin, &user).await)
}

/// Returns the names of the commands, keys and channels that the server has refused to a user.
async fn refusals(admin: &mut MultiplexedConnection, user: &str) -> Vec<String> {
    let log: Vec<Vec<Value>> = redis::cmd("ACL").arg("LOG").query_async(admin).await.expect("a reply");
    let field = |entry: &[Value], name: &str| -> Option<String> {
        let index = entry.iter().position(|field| *field == Value::BulkString(name.into()))?;
        redis::from_redis_value(entry.get(index + 1)?.clone()).ok()
    };
    let of_user = log.iter().filter(|entry| field(entry, "username").as_deref() == Some(user));
    of_user.filter_map(|entry| field(entry, "object")).collect()
}
