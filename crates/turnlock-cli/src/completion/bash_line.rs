/// A command line up to the cursor, as bash has it: with quotes.
#[derive(Debug)]
pub(super) struct BashLine {
    /// The words. The last one is at the cursor, and may be empty.
    pub(super) words: Vec<Word>,
}

/// A word as it is typed, and its meaning.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The position of its first character in the line.
    pub(super) start: usize,
    /// As it is typed, without a quote that is not closed.
    raw: String,
    /// Its meaning. Variables and substitutions stay as they are: nothing is evaluated.
    pub(super) text: String,
    /// The quote at its beginning, if it is not closed.
    quote: Option<char>,
}

impl BashLine {
    pub(super) fn parse(line: &str) -> Self {
        let mut words = Vec::new();
        let mut word: Option<Word> = None;
        let mut characters = line.chars().enumerate().peekable();
        while let Some((at, character)) = characters.next() {
            let quote = word.as_ref().and_then(|word| word.quote);
            if quote.is_none() && character.is_ascii_whitespace() {
                words.extend(word.take());
                continue;
            }
            let word = word.get_or_insert_with(|| Word { start: at, ..Word::default() });
            word.raw.push(character);
            match (quote, character) {
                (None, '\'' | '"') => word.quote = Some(character),
                (Some(quote), _) if quote == character => word.quote = None,
                (None | Some('"'), '\\') => {
                    let Some((_, next)) = characters.next() else { break };
                    word.raw.push(next);
                    if quote.is_some() && !"\"\\$`".contains(next) {
                        word.text.push('\\');
                    }
                    word.text.push(next);
                }
                _ => word.text.push(character),
            }
        }
        let start = line.chars().count();
        words.push(word.unwrap_or_else(|| Word { start, ..Word::default() }));
        Self { words }
    }

    /// The word at the cursor.
    pub(super) fn current(&self) -> &Word {
        &self.words[self.words.len() - 1]
    }

    /// The meanings of the words before the cursor.
    pub(super) fn texts(&self) -> Vec<String> {
        self.words[..self.words.len() - 1].iter().map(|word| word.text.clone()).collect()
    }
}

impl Word {
    /// What replaces `tail` so that the word means `value`. `None` if no quoting can express that.
    ///
    /// `tail` is the part of the word that bash replaces: what follows the last colon or other character of
    /// `COMP_WORDBREAKS`, and the whole word after an open quote.
    pub(super) fn replacement(&self, value: &str, tail: &str) -> Option<String> {
        let typed = match self.quote {
            None => self.raw.as_str(),
            // A quote in the middle of a word is not continued.
            Some(quote) => self.raw.strip_prefix(quote).filter(|typed| !typed.contains(['\'', '"']))?,
        };
        let kept = typed.strip_suffix(tail)?;
        quoted(value, self.quote)?.strip_prefix(kept).map(str::to_owned)
    }
}

/// Quotes a value for the shell, after an open quote or without one.
fn quoted(value: &str, open: Option<char>) -> Option<String> {
    let escaped = |special: fn(char) -> bool| {
        let mut text = String::new();
        for character in value.chars() {
            if special(character) {
                text.push('\\');
            }
            text.push(character);
        }
        text
    };
    match open {
        None => Some(escaped(|character| {
            character.is_ascii() && !character.is_ascii_alphanumeric() && !"_-.,/:=@%+".contains(character)
        })),
        // Both have no way to express these: a history expansion is not escaped in double quotes.
        Some('\'') => (!value.contains('\'')).then(|| value.to_owned()),
        Some(_) => (!value.contains('!')).then(|| escaped(|character| "\"\\$`".contains(character))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn texts(line: &str) -> Vec<String> {
        BashLine::parse(line).words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn a_line_is_split_as_the_shell_splits_it() {
        assert_eq!(texts("turnlock  show or"), ["turnlock", "show", "or"]);
        assert_eq!(texts("turnlock show "), ["turnlock", "show", ""]);
        assert_eq!(
            texts(r#"a 'b c' "d \"e\" \f" g\ h 'i"j' k''l"#),
            ["a", "b c", r#"d "e" \f"#, "g h", "i\"j", "kl"]
        );
        assert_eq!(texts("show \"a b"), ["show", "a b"]);
        assert_eq!(texts("show $(reboot) `x`"), ["show", "$(reboot)", "`x`"]);
        assert_eq!(texts("注文 \\"), ["注文", ""]);
        assert_eq!(BashLine::parse("注文 -- ls").words[2].start, 6);
    }

    #[test]
    fn a_replacement_means_the_value() {
        let replacement =
            |typed: &str, value: &str, tail: &str| BashLine::parse(typed).current().replacement(value, tail);
        for (typed, value, tail, expected) in [
            ("or", "orders", "or", Some("orders")),
            ("orders:4", "orders:42", "4", Some("42")),
            ("orders:", "orders:42", "", Some("42")),
            ("--kind=fa", "--kind=fair-lock", "fa", Some("fair-lock")),
            (r"a\ b:4", "a b:42", "4", Some("42")),
            ("", "a b", "", Some(r"a\ b")),
            ("", "$(reboot);`x`&'\"", "", Some(r#"\$\(reboot\)\;\`x\`\&\'\""#)),
            ("", "~root", "", Some(r"\~root")),
            ("", "a!b*", "", Some(r"a\!b\*")),
            ("\"a", "a $b\"", "a", Some(r#"a \$b\""#)),
            ("\"a", "a!b", "a", None),
            ("'a", "a $b!:", "a", Some("a $b!:")),
            ("'a", "a'b", "a", None),
            ("\"orders:4", "orders:42", "orders:4", Some("orders:42")),
            ("o\"r", "orders", "r", None),
            ("注", "注文", "注", Some("注文")),
        ] {
            assert_eq!(replacement(typed, value, tail).as_deref(), expected, "{typed} {value}");
        }
    }

    #[test]
    fn a_quoted_value_has_its_meaning() {
        let value: String = (' '..='~').collect();
        let quoted = quoted(&value, None).unwrap();
        assert_eq!(BashLine::parse(&quoted).current().text, value);
    }

    /// Text with many characters that mean something to the shell.
    fn text(most: usize) -> impl Strategy<Value = String> {
        let special = select(" \t'\"\\$`!*?~:=;&|<>()[]{}#ab注é".chars().collect::<Vec<_>>());
        let character = prop_oneof![8 => special, 1 => any::<char>()];
        proptest::collection::vec(character, 0..most).prop_map(String::from_iter)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_line_has_words_in_their_order(line in text(20)) {
            let parsed = BashLine::parse(&line);
            let starts: Vec<_> = parsed.words.iter().map(|word| word.start).collect();
            prop_assert!(starts.is_sorted_by(|one, next| one < next) && starts.last() <= Some(&line.chars().count()));
            prop_assert_eq!(parsed.texts().len() + 1, parsed.words.len());
        }

        #[test]
        fn what_is_inserted_means_the_value(value in text(8), before in text(4), at in 0..20_usize, tail in 0..20_usize, other in text(8)) {
            let quotes = [None, Some('\''), Some('"')];
            // What a user may have typed of it, and anything else.
            let typed = quotes.into_iter().filter_map(|quote| {
                let whole = quoted(&value, quote)?;
                let part: String = whole.chars().take(at).collect();
                Some(format!("{before} {}{part}", quote.map(String::from).unwrap_or_default()))
            });
            for line in typed.chain([other.clone()]) {
                let word_at = |line: &str| { let word = BashLine::parse(line).words.pop()?; Some((word.start, word.text)) };
                let parsed = BashLine::parse(&line);
                let ends = (0..=line.len()).filter(|end| line.is_char_boundary(*end)).rev();
                let tail = &line[ends.clone().nth(tail).unwrap_or(line.len())..];
                if let Some(replacement) = parsed.current().replacement(&value, tail) {
                    let inserted = format!("{}{replacement}", line.strip_suffix(tail).unwrap());
                    prop_assert_eq!(word_at(&inserted), Some((parsed.current().start, value.clone())), "{}", inserted);
                }
            }
        }
    }
}
