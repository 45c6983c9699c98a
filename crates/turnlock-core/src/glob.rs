//! Patterns for names, in the words of Redis.

/// A pattern that names match, or do not.
///
/// | in the pattern | matches |
/// |---|---|
/// | `*` | any characters, or none |
/// | `?` | one character |
/// | `[abc]`, `[a-c]` | one of these characters |
/// | `[^abc]` | one character that is none of these |
/// | `\*` | the character behind the backslash, as it is |
///
/// Any text is a pattern. A backslash at the end stands for itself, and brackets that are not closed end with the pattern.
/// A character is one of Unicode, where Redis would count bytes.
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
    Just(char),
    One,
    Any,
    Of { ranges: Vec<(char, char)>, is_negated: bool },
}

impl Part {
    fn takes(&self, character: char) -> bool {
        match self {
            Self::Just(just) => *just == character,
            Self::One => true,
            Self::Any => false,
            Self::Of { ranges, is_negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != *is_negated
            }
        }
    }
}

impl Glob {
    /// Reads a pattern.
    pub fn new(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(character) = rest.next() {
            parts.push(match character {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::One,
                '[' => set(&mut rest),
                '\\' => Part::Just(rest.next().unwrap_or('\\')),
                character => Part::Just(character),
            });
        }
        Self(parts)
    }

    /// The pattern that only this name matches.
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

    /// Whether the whole of `name` matches. The time it takes is that of one pass over the name for each part at the most.
    pub fn matches(&self, name: &str) -> bool {
        let (mut part, mut rest) = (0, name.chars());
        // The last `*`, and what is left of the name when it takes no more than it has so far.
        let mut last_any = None;
        loop {
            let before = rest.clone();
            match (self.0.get(part), rest.next()) {
                (Some(Part::Any), _) => {
                    part += 1;
                    last_any = Some((part, before.clone()));
                    rest = before;
                }
                (None, None) => return true,
                (Some(wanted), Some(character)) if wanted.takes(character) => part += 1,
                _ => {
                    // The last `*` takes one character more. An earlier one need not: what stands between was found.
                    let Some((behind, left)) = &mut last_any else { return false };
                    if left.next().is_none() {
                        return false;
                    }
                    (part, rest) = (*behind, left.clone());
                }
            }
        }
    }

    /// A pattern for Redis that all keys match which are `prefix` and a name that matches this, and few others.
    ///
    /// It has two `*` at the most: with many, older servers take very long for a key that nearly matches. And it has nothing
    /// that Redis reads in another way than this type.
    pub fn widened(&self, prefix: &str) -> String {
        let mut texts = self.0.split(|part| !matches!(part, Part::Just(_))).map(text);
        let head = Self::escape(prefix) + &texts.next().map(|head| Self::escape(&head)).unwrap_or_default();
        if self.0.iter().all(|part| matches!(part, Part::Just(_))) {
            return head;
        }
        match texts.max_by_key(String::len).filter(|text| !text.is_empty()) {
            Some(longest) => head + "*" + &Self::escape(&longest) + "*",
            None => head + "*",
        }
    }
}

fn text(parts: &[Part]) -> String {
    let just = |part: &Part| if let Part::Just(character) = part { Some(*character) } else { None };
    parts.iter().filter_map(just).collect()
}

/// What stands in brackets, of which the first was read.
fn set(rest: &mut std::str::Chars<'_>) -> Part {
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
    Part::Of { ranges, is_negated }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::new(pattern).matches(name)
    }

    #[test]
    fn patterns_match_as_those_of_redis_do() {
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
    fn many_stars_are_no_trouble() {
        let (pattern, name) = ("a*".repeat(500) + "b", "a".repeat(4096));
        assert!(!matches(&pattern, &name));
        assert!(matches(&pattern, &(name + "b")));
    }

    #[test]
    fn a_wider_pattern_has_what_is_known_of_the_key() {
        let widened = |prefix, pattern| Glob::new(pattern).widened(prefix);
        assert_eq!(widened("app:", "orders"), "app:orders");
        assert_eq!(widened("a*:", "x?"), "a\\*:x*");
        assert_eq!(widened("", "*"), "*");
        assert_eq!(widened("", "a*b?long*c"), "a*long*");
        assert_eq!(widened("", "\\[x\\]*"), "\\[x\\]*");
    }

    proptest! {
        #[test]
        fn an_escaped_name_matches_itself_alone(name in ".{0,12}", other in ".{0,12}") {
            let glob = Glob::new(&Glob::escape(&name));
            prop_assert!(glob.matches(&name));
            prop_assert_eq!(glob.matches(&other), name == other);
        }

        #[test]
        fn what_matches_matches_the_wider_pattern_too(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", name in "[ab^*-]{0,8}") {
            let glob = Glob::new(&pattern);
            if glob.matches(&name) {
                let key = ["b*", name.as_str()].concat();
                prop_assert!(matches(&glob.widened("b*"), &key));
            }
        }
    }
}
