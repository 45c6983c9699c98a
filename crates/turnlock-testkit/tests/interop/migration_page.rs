//! `docs/coming-from-redisson.md` lists every method and setting of Redisson's locks.
//!
//! The first column of each table is compared with the jar, both ways: a method that is missing on the page fails the
//! test, and so does a name on the page that Redisson does not have.

use std::collections::{BTreeMap, BTreeSet};

use turnlock_testkit::Redisson;

use crate::java_types::{self, JavaType, Method};

/// The version that the page describes.
pub(crate) const VERSION: &str = Redisson::VERSIONS[0];

const PAGE: &str = include_str!("../../../../docs/coming-from-redisson.md");

/// The section of the page for each type with methods of locks.
///
/// The methods of the variants `Async`, `Reactive` and `Rx` are those of the interface: by name, without `Async`.
const METHODS: &[(&str, &[&str])] = &[
    (
        "RLock",
        &[
            "java.util.concurrent.locks.Lock",
            "org.redisson.api.RLock",
            "org.redisson.api.RLockAsync",
            "org.redisson.api.RLockReactive",
            "org.redisson.api.RLockRx",
        ],
    ),
    (
        "RFencedLock",
        &[
            "org.redisson.api.RFencedLock",
            "org.redisson.api.RFencedLockAsync",
            "org.redisson.api.RFencedLockReactive",
            "org.redisson.api.RFencedLockRx",
        ],
    ),
    (
        "RReadWriteLock",
        &[
            "java.util.concurrent.locks.ReadWriteLock",
            "org.redisson.api.RReadWriteLock",
            "org.redisson.api.RReadWriteLockReactive",
            "org.redisson.api.RReadWriteLockRx",
        ],
    ),
    (
        "RedissonMultiLock and RedissonRedLock",
        &["org.redisson.RedissonMultiLock", "org.redisson.RedissonRedLock"],
    ),
    (
        "RSemaphore",
        &[
            "org.redisson.api.RSemaphore",
            "org.redisson.api.RSemaphoreAsync",
            "org.redisson.api.RSemaphoreReactive",
            "org.redisson.api.RSemaphoreRx",
        ],
    ),
    (
        "RPermitExpirableSemaphore",
        &[
            "org.redisson.api.RPermitExpirableSemaphore",
            "org.redisson.api.RPermitExpirableSemaphoreAsync",
            "org.redisson.api.RPermitExpirableSemaphoreReactive",
            "org.redisson.api.RPermitExpirableSemaphoreRx",
        ],
    ),
    (
        "RCountDownLatch",
        &[
            "org.redisson.api.RCountDownLatch",
            "org.redisson.api.RCountDownLatchAsync",
            "org.redisson.api.RCountDownLatchReactive",
            "org.redisson.api.RCountDownLatchRx",
        ],
    ),
    (
        "RObject, RExpirable and RObservable",
        &[
            "org.redisson.api.RObject",
            "org.redisson.api.RObjectAsync",
            "org.redisson.api.RObjectReactive",
            "org.redisson.api.RObjectRx",
            "org.redisson.api.RExpirable",
            "org.redisson.api.RExpirableAsync",
            "org.redisson.api.RExpirableReactive",
            "org.redisson.api.RExpirableRx",
            "org.redisson.api.RObservable",
            "org.redisson.api.RObservableAsync",
            "org.redisson.api.RObservableReactive",
            "org.redisson.api.RObservableRx",
        ],
    ),
];

/// The section for the methods that return a type of [`METHODS`]: how locks are made.
const CLIENT: &str = "RedissonClient";
const CLIENT_TYPES: &[&str] = &["org.redisson.Redisson", "org.redisson.api.RedissonClient"];

/// The section for the settings: each setter `setX` is `x`, any other method but a getter has its own name.
const SETTINGS: &str = "Settings";
const SETTINGS_TYPES: &[&str] = &[
    "org.redisson.config.Config",
    "org.redisson.config.BaseConfig",
    "org.redisson.config.BaseMasterSlaveServersConfig",
    "org.redisson.config.SingleServerConfig",
    "org.redisson.config.MasterSlaveServersConfig",
    "org.redisson.config.ReplicatedServersConfig",
    "org.redisson.config.SentinelServersConfig",
    "org.redisson.config.ClusterServersConfig",
];

/// A method as the page names it: `name` stands for all forms, `name(a, b)` for those with as many parameters.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mention {
    name: String,
    arity: Option<usize>,
}

impl Mention {
    fn parse(code: &str) -> Self {
        let (name, arity) = match code.strip_suffix(')').and_then(|code| code.split_once('(')) {
            None => (code, None),
            Some((name, "")) => (name, Some(0)),
            Some((name, parameters)) => (name, Some(parameters.split(',').count())),
        };
        Self { name: name.to_owned(), arity }
    }

    fn is_of(&self, method: &Method) -> bool {
        self.name == method.name && self.arity.is_none_or(|arity| arity == method.arity)
    }
}

pub(crate) fn is_complete() {
    let listed = METHODS.iter().flat_map(|(_, types)| *types).chain(CLIENT_TYPES).chain(SETTINGS_TYPES);
    let types = java_types::read(&Redisson::jar(VERSION), listed.clone().copied());
    let mut faults = BTreeSet::new();
    for name in listed.clone() {
        let java = types.get(*name).unwrap_or_else(|| panic!("`javap` listed no {name}"));
        // The client has many types that are not locks.
        let inherited = java.supertypes.iter().filter(|_| !CLIENT_TYPES.contains(name));
        for other in inherited.filter(|other| !types.contains_key(*other)) {
            faults.insert(format!("{name} inherits from {other}, which is in no section"));
        }
    }
    for (heading, names) in METHODS {
        check_methods(heading, names.iter().map(|name| (*name, &types[*name])), &mut faults);
    }
    let is_listed = |name: &str| METHODS.iter().any(|(_, types)| types.contains(&name));
    check_client(&types, is_listed, &mut faults);
    check_settings(&types, &mut faults);
    let faults = Vec::from_iter(faults).join("\n");
    assert!(faults.is_empty(), "docs/coming-from-redisson.md and Redisson {VERSION} differ:\n{faults}");
}

fn check_methods<'a>(
    heading: &str,
    types: impl Iterator<Item = (&'a str, &'a JavaType)>,
    faults: &mut BTreeSet<String>,
) {
    let mentions = mentions(heading);
    let mut methods = Vec::new();
    for (name, java) in types {
        let is_variant = ["Async", "Reactive", "Rx"].iter().any(|suffix| name.ends_with(suffix));
        for method in &java.methods {
            let Method { name, arity, .. } = method;
            let sync = name.strip_suffix("Async");
            if is_variant || sync.is_some() {
                let sync = sync.unwrap_or(name);
                if !mentions.iter().any(|mention| mention.name == sync) {
                    faults.insert(format!("section {heading:?} lacks `{sync}`"));
                }
            } else if !mentions.iter().any(|mention| mention.is_of(method)) {
                faults.insert(format!("section {heading:?} lacks `{name}` with {arity} parameters"));
            }
            methods.push(method);
        }
    }
    report_unknown(heading, &mentions, |mention| methods.iter().any(|method| mention.is_of(method)), faults);
}

fn check_client(
    types: &BTreeMap<String, JavaType>,
    is_listed: impl Fn(&str) -> bool,
    faults: &mut BTreeSet<String>,
) {
    let mentions = mentions(CLIENT);
    let methods: Vec<_> = CLIENT_TYPES.iter().flat_map(|name| &types[*name].methods).collect();
    for method in methods.iter().filter(|method| is_listed(&method.returns)) {
        if !mentions.iter().any(|mention| mention.is_of(method)) {
            let Method { name, arity, returns } = method;
            faults.insert(format!(
                "section {CLIENT:?} lacks `{name}` with {arity} parameters, which returns {returns}"
            ));
        }
    }
    report_unknown(CLIENT, &mentions, |mention| methods.iter().any(|method| mention.is_of(method)), faults);
}

fn check_settings(types: &BTreeMap<String, JavaType>, faults: &mut BTreeSet<String>) {
    let mentions = mentions(SETTINGS);
    let methods = SETTINGS_TYPES.iter().flat_map(|name| &types[*name].methods);
    let settings: BTreeSet<_> = methods.filter_map(|method| setting(&method.name)).collect();
    for setting in &settings {
        if !mentions.iter().any(|mention| mention.name == *setting) {
            faults.insert(format!("section {SETTINGS:?} lacks `{setting}`"));
        }
    }
    report_unknown(SETTINGS, &mentions, |mention| settings.contains(&mention.name), faults);
}

fn report_unknown(
    heading: &str,
    mentions: &BTreeSet<Mention>,
    is_known: impl Fn(&Mention) -> bool,
    faults: &mut BTreeSet<String>,
) {
    for Mention { name, arity } in mentions.iter().filter(|mention| !is_known(mention)) {
        let form = arity.map_or(String::new(), |arity| format!(" with {arity} parameters"));
        faults.insert(format!("section {heading:?} names `{name}`{form}, which does not exist"));
    }
}

/// The setting of a method of a configuration. `None` for a getter.
fn setting(method: &str) -> Option<String> {
    if method.starts_with("get") || method.starts_with("is") {
        return None;
    }
    let Some(name) = method.strip_prefix("set") else { return Some(method.to_owned()) };
    let (first, rest) = name.split_at_checked(1)?;
    Some(first.to_lowercase() + rest)
}

/// The code in the first column of the tables below this heading.
fn mentions(heading: &str) -> BTreeSet<Mention> {
    let mut sections = PAGE.split("\n## ").flat_map(|part| part.split("\n### "));
    let section = sections.find(|section| section.lines().next() == Some(heading));
    let section = section.unwrap_or_else(|| panic!("the page has no section {heading:?}"));
    let cells = section.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let code = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    code.map(Mention::parse).collect()
}
