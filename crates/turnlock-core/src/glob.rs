//! Glob patterns for names, in the syntax of Redis.

/// A glob pattern for names.
///
/// | in the pattern | matches |
/// |---|---|
/// | `*` | any characters, or none |
/// | `?` | one character |
/// | `[abc]`, `[a-c]` | one of these characters |
/// | `[^abc]` | one character that is none of these |
/// | `\*` | the character after the backslash, literally |
///
/// Any text is a valid pattern. A backslash at the end matches itself, and an unclosed bracket ends with the
/// pattern. Characters are Unicode scalar values; Redis compares bytes.
///
/// ```
/// use turnlock_core::Glob;
///
/// assert!(Glob::new("orders:*").matches("orders:42"));
/// assert!(!Glob::new(&Glob::escape("orders:*")).matches("orders:42"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(char),
    AnyChar,
    AnyRun,
    Set { ranges: Vec<(char, char)>, is_negated: bool },
}

impl Part {
    fn matches_char(&self, character: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::AnyChar => true,
            Self::AnyRun => false,
            Self::Set { ranges, is_negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != *is_negated
            }
        }
    }
}

impl Glob {
    /// Parses a pattern. Never fails.
    pub fn new(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(character) = rest.next() {
            parts.push(match character {
                '*' if parts.last() == Some(&Part::AnyRun) => continue,
                '*' => Part::AnyRun,
                '?' => Part::AnyChar,
                '[' => parse_set(&mut rest),
                '\\' => Part::Literal(rest.next().unwrap_or('\\')),
                character => Part::Literal(character),
            });
        }
        Self(parts)
    }

    /// Returns the pattern that matches `name` and nothing else.
    pub fn escape(name: &str) -> String {
        let mut pattern = String::with_capacity(name.len());
        for character in name.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern
    }

    /// Returns `true` if the whole of `name` matches.
    ///
    /// Takes at most one pass over the name per part of the pattern.
    pub fn matches(&self, name: &str) -> bool {
        let (mut part, mut rest) = (0, name.chars());
        // The part after the last `*`, and the rest of the name at which that part is tried next.
        let mut last_run = None;
        loop {
            let before = rest.clone();
            match (self.0.get(part), rest.next()) {
                (Some(Part::AnyRun), _) => {
                    part += 1;
                    last_run = Some((part, before.clone()));
                    rest = before;
                }
                (None, None) => return true,
                (Some(wanted), Some(character)) if wanted.matches_char(character) => part += 1,
                _ => {
                    // Backtrack: the last `*` matches one more character. Earlier ones need not, since the
                    // parts between them have matched.
                    let Some((next_part, left)) = &mut last_run else { return false };
                    if left.next().is_none() {
                        return false;
                    }
                    (part, rest) = (*next_part, left.clone());
                }
            }
        }
    }

    /// Returns a Redis pattern for keys that are `prefix` followed by a matching name.
    ///
    /// It matches all of those keys and few others: filter its results with [`matches`](Self::matches). It
    /// has at most two `*`, since older servers take very long to match many of them against a key that
    /// nearly matches. And it uses only syntax that Redis and this type read in the same way.
    pub fn widened(&self, prefix: &str) -> String {
        let mut literals = self.0.split(|part| !matches!(part, Part::Literal(_))).map(literal_text);
        let head =
            Self::escape(prefix) + &literals.next().map(|head| Self::escape(&head)).unwrap_or_default();
        if self.0.iter().all(|part| matches!(part, Part::Literal(_))) {
            return head;
        }
        match literals.max_by_key(String::len).filter(|text| !text.is_empty()) {
            Some(longest) => head + "*" + &Self::escape(&longest) + "*",
            None => head + "*",
        }
    }
}

fn literal_text(parts: &[Part]) -> String {
    let literal = |part: &Part| if let Part::Literal(character) = part { Some(*character) } else { None };
    parts.iter().filter_map(literal).collect()
}

/// Parses a bracket expression whose opening bracket was consumed.
fn parse_set(rest: &mut std::str::Chars<'_>) -> Part {
    let is_negated = rest.as_str().starts_with('^');
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    while let Some(character) = rest.next() {
        let first = match character {
            ']' => break,
            '\\' => rest.next().unwrap_or('\\'),
            character => character,
        };
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                let last = if last == '\\' { ahead.next().unwrap_or('\\') } else { last };
                *rest = ahead;
                last
            }
            _ => first,
        };
        ranges.push((first.min(last), first.max(last)));
    }
    Part::Set { ranges, is_negated }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern).matches(name)
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, yes, no) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "a\nb\0", "日本"], &[]),
            ("a*", &["a", "ab"], &["", "ba"]),
            ("*a", &["a", "ba", "aa"], &["ab"]),
            ("a*b*c", &["abc", "axbxc", "abcbc"], &["ab", "abcd", "acb"]),
            ("a?c", &["abc", "a*c", "aöc"], &["ac", "abbc"]),
            ("[ab]c", &["ac", "bc"], &["cc", "c", "abc"]),
            ("[^ab]c", &["cc", "*c"], &["ac", "c"]),
            ("[a-cx]", &["a", "b", "c", "x"], &["d", "-", ""]),
            ("[c-a]", &["b"], &["-"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[\\]]", &["]"], &["\\", ""]),
            ("[a\\-c]", &["a", "-", "c"], &["b"]),
            ("[]a", &[], &["a", "]a", ""]),
            ("[ab", &["a", "b"], &["[ab", "c"]),
            ("\\*", &["*"], &["a", "\\*"]),
            ("a\\", &["a\\"], &["a"]),
            ("orders:**:x", &["orders::x", "orders:1:x"], &["orders:x"]),
        ] {
            for name in yes {
                assert!(matches(pattern, name), "{pattern:?} matches {name:?}");
            }
            for name in no {
                assert!(!matches(pattern, name), "{pattern:?} does not match {name:?}");
            }
        }
    }

    #[test]
    fn many_stars_match_in_bounded_time() {
        let (pattern, name) = ("a*".repeat(500) + "b", "a".repeat(4096));
        assert!(!matches(&pattern, &name));
        assert!(matches(&pattern, &(name + "b")));
    }

    #[test]
    fn a_widened_pattern_keeps_the_literal_parts_of_the_key() {
        let widened = |prefix, pattern| Glob::new(pattern).widened(prefix);
        assert_eq!(widened("app:", "orders"), "app:orders");
        assert_eq!(widened("a*:", "x?"), "a\\*:x*");
        assert_eq!(widened("", "*"), "*");
        assert_eq!(widened("", "a*b?long*c"), "a*long*");
        assert_eq!(widened("", "\\[x\\]*"), "\\[x\\]*");
    }

    proptest! {
        #[test]
        fn an_escaped_name_matches_only_itself(name in ".{0,12}", other in ".{0,12}") {
            let glob = Glob::new(&Glob::escape(&name));
            prop_assert!(glob.matches(&name));
            prop_assert_eq!(glob.matches(&other), name == other);
        }

        #[test]
        fn a_matching_name_matches_the_widened_pattern_too(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", name in "[ab^*-]{0,8}") {
            let glob = Glob::new(&pattern);
            if glob.matches(&name) {
                let key = ["b*", name.as_str()].concat();
                prop_assert!(matches(&glob.widened("b*"), &key));
            }
        }
    }
}
