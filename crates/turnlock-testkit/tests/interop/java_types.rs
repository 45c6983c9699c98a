//! The public methods of Java types, as `javap` prints them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// A Java interface or class.
#[derive(Debug, Default)]
pub(crate) struct JavaType {
    /// The types that it extends or implements.
    pub(crate) supertypes: Vec<String>,
    pub(crate) methods: Vec<Method>,
}

/// A public method, without the methods that are inherited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Method {
    pub(crate) name: String,
    /// The number of parameters.
    pub(crate) arity: usize,
    pub(crate) returns: String,
}

/// Why `javap` cannot be run on this machine, or `None` when it can.
pub(crate) fn missing() -> Option<String> {
    run(Command::new("javap").arg("-version")).err()
}

/// Reads these types, by full name, from a jar or from the Java library. Panics if one does not exist.
pub(crate) fn read<'a>(jar: &Path, names: impl Iterator<Item = &'a str>) -> BTreeMap<String, JavaType> {
    let listing = run(Command::new("javap").arg("-cp").arg(jar).arg("-public").args(names));
    parse(&listing.unwrap_or_else(|reason| panic!("{reason}")))
}

fn run(javap: &mut Command) -> Result<String, String> {
    let output = javap.output().map_err(|error| format!("`javap` cannot be run: {error}"))?;
    let Output { status, stdout, stderr } = output;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if status.success() { Ok(text(&stdout)) } else { Err(format!("`javap` failed: {}", text(&stderr))) }
}

fn parse(listing: &str) -> BTreeMap<String, JavaType> {
    let mut types = BTreeMap::new();
    let mut current = None;
    for line in listing.lines() {
        let line = without_type_arguments(line);
        if let Some(header) = line.strip_suffix(" {") {
            let (name, supertypes) = parse_header(header);
            types.insert(name.clone(), JavaType { supertypes, methods: Vec::new() });
            current = Some(name);
        } else if let (Some(method), Some(name)) = (parse_method(&line), &current) {
            let parsed: &mut JavaType = types.entry(name.clone()).or_default();
            parsed.methods.push(method);
        }
    }
    types
}

/// `public interface a.B extends c.D,e.F`
fn parse_header(header: &str) -> (String, Vec<String>) {
    const KEYWORDS: [&str; 7] =
        ["public", "abstract", "final", "interface", "class", "extends", "implements"];
    let words = header.split([' ', ',']).filter(|word| !word.is_empty() && !KEYWORDS.contains(word));
    let mut words = words.map(str::to_owned);
    let name = words.next().unwrap_or_else(|| panic!("no name of a type in {header:?}"));
    (name, words.collect())
}

/// `public abstract boolean tryLock(long, java.util.concurrent.TimeUnit) throws a.B;`
///
/// `None` for a constructor, whose name is that of the type, and for a field.
fn parse_method(line: &str) -> Option<Method> {
    let (signature, rest) = line.split_once('(')?;
    let (parameters, _) = rest.split_once(')')?;
    let mut words = signature.split_whitespace().rev();
    let name = words.next().filter(|name| !name.contains('.'))?;
    let arity = parameters.split(',').filter(|parameter| !parameter.trim().is_empty()).count();
    Some(Method { name: name.to_owned(), arity, returns: words.next()?.to_owned() })
}

/// Removes `<…>`, which contains commas and keywords.
fn without_type_arguments(line: &str) -> String {
    let mut depth = 0_usize;
    let is_outside = |character: &char| {
        match character {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    line.chars().filter(is_outside).collect()
}
