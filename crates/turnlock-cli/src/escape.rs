//! Escapes untrusted text before it is printed.
//!
//! Names, labels and owners are whatever a client wrote to the store. Printed as they are, they could move the cursor, hide
//! text or reverse its direction.

use unicode_width::UnicodeWidthChar;

/// The most combining marks (such as accents) per character: more would overlap the lines around.
const MAX_MARKS: usize = 2;

/// Escapes a name, label or owner: control characters become `\n`, `\u{1b}`, `\u{202e}`.
pub(crate) fn escape(text: &str) -> String {
    escape_except(text, &['"', '\''])
}

/// Escapes a message of this program that may contain text of a server.
///
/// Backslashes stay as they are, since names in the message are escaped already.
pub(crate) fn escape_message(message: &str) -> String {
    escape_except(message, &['"', '\'', '\\'])
}

fn escape_except(text: &str, unescaped: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    // A mark at the beginning has no character to combine with.
    let mut marks = MAX_MARKS;
    for character in text.chars() {
        if unescaped.contains(&character) {
            escaped.push(character);
            marks = 0;
        } else if !is_mark(character) {
            escaped.extend(character.escape_debug());
            marks = 0;
        } else if marks < MAX_MARKS {
            escaped.push(character);
            marks += 1;
        } else {
            escaped.extend(character.escape_debug());
        }
    }
    escaped
}

/// Returns `true` for a mark that combines with the character before it.
fn is_mark(character: char) -> bool {
    // `str::escape_debug` escapes marks only at the beginning of the text, `char::escape_debug` always.
    character.width() == Some(0) && ['a', character].iter().collect::<String>().escape_debug().count() == 2
}

/// Serializes a value as one line of JSON without characters that could affect the terminal.
pub(crate) fn json_line(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let mut line = String::new();
    for character in serde_json::to_string(value)?.chars() {
        // The syntax of JSON is ASCII, so any other character is inside a string. Characters below space are escaped there
        // by serde_json.
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
    fn printable_text_is_unchanged() {
        for text in ["orders:42", "it's \"this\"", "naïve", "e\u{301}té", "注文", "🦀", "❤\u{fe0f}", ""]
        {
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn control_and_direction_characters_are_escaped() {
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
            assert_eq!(escape(text), expected);
        }
    }

    #[test]
    fn an_escaped_name_in_a_message_is_not_escaped_again() {
        assert_eq!(escape_message("the lock \"a\\nb\" is\nlost"), "the lock \"a\\nb\" is\\nlost");
    }

    #[test]
    fn json_escapes_control_characters_and_parses_to_the_same_text() {
        let hostile = "a\n\u{1b}[2J\u{9b}\u{7f}\u{202e}\u{e0001}\"\\ 注🦀";
        let line = json_line(&hostile).unwrap();
        assert!(
            line.chars().all(|character| character == ' '
                || character.escape_debug().count() == 1
                || "\"\\".contains(character)),
            "{line}"
        );
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), hostile);
    }
}
