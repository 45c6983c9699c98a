//! Text of others on our terminal.

use unicode_width::UnicodeWidthChar;

/// How many marks may stand on one character, such as accents: more of them would run over the lines around.
const MARKS: usize = 2;

/// The text with all that could move the cursor, hide or turn something written out: `\n`, `\u{1b}`, `\u{202e}`.
///
/// Names, labels and owners are whatever somebody wrote to the store.
pub(crate) fn visible(text: &str) -> String {
    written_out(text, &['"', '\''])
}

/// The same for a sentence of ours, in which names are written out already and others' words are perhaps not.
pub(crate) fn harmless(sentence: &str) -> String {
    written_out(sentence, &['"', '\'', '\\'])
}

fn written_out(text: &str, but_not: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut marks = MARKS;
    for character in text.chars() {
        if but_not.contains(&character) {
            shown.push(character);
            marks = 0;
        } else if !is_mark(character) {
            shown.extend(character.escape_debug());
            marks = 0;
        } else if marks < MARKS {
            shown.push(character);
            marks += 1;
        } else {
            shown.extend(character.escape_debug());
        }
    }
    shown
}

/// Whether the character adds to the one before it, and does nothing else.
fn is_mark(character: char) -> bool {
    // A text escapes marks only at its beginning, a character by itself always.
    character.width() == Some(0) && ['a', character].iter().collect::<String>().escape_debug().count() == 2
}

/// A value as one line of JSON, in which nothing moves the cursor either.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let mut line = String::new();
    for character in serde_json::to_string(value)?.chars() {
        // JSON itself is ASCII, so whatever is not stands in a string. What is below a space is escaped there already.
        if character.is_ascii_graphic() || character == ' ' || character.escape_debug().count() == 1 {
            line.push(character);
        } else {
            let mut units = [0; 2];
            line.extend(character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_harmless_stays_as_it_is() {
        for text in ["orders:42", "it's \"this\"", "naïve", "e\u{301}té", "注文", "🦀", "❤\u{fe0f}", ""]
        {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn what_would_move_hide_or_turn_is_written_out() {
        for (text, expected) in [
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\u{1b}[2J", r"\u{1b}[2J"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("\u{7f}\u{0}", r"\u{7f}\0"),
            ("a\u{202e}b\u{2066}", r"a\u{202e}b\u{2066}"),
            ("a\u{200b}b\u{feff}", r"a\u{200b}b\u{feff}"),
            ("\u{301}", r"\u{301}"),
            ("a\u{301}\u{301}\u{301}", "a\u{301}\u{301}\\u{301}"),
            (r"back\slash", r"back\\slash"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn what_was_written_out_is_not_written_out_again() {
        assert_eq!(harmless("the lock \"a\\nb\" is\nlost"), "the lock \"a\\nb\" is\\nlost");
    }

    #[test]
    fn json_says_the_same_in_harmless_characters() {
        let hostile = "a\n\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{e0001}\"\\ 注🦀";
        let line = json(&hostile).unwrap();
        assert!(
            line.chars().all(|character| character == ' '
                || character.escape_debug().count() == 1
                || "\"\\".contains(character)),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), hostile);
    }
}
