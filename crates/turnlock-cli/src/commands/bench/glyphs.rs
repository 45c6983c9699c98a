/// The characters of bars and units: blocks and `µ`, or ASCII where the locale has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Glyphs {
    Unicode,
    Ascii,
}

impl Glyphs {
    /// Chooses by the locale of the environment.
    pub(super) fn of_locale() -> Self {
        // As setlocale(3): the first variable that is set counts.
        let names =
            ["LC_ALL", "LC_CTYPE", "LANG"].map(|variable| std::env::var(variable).unwrap_or_default());
        Self::of(names.iter().find(|name| !name.is_empty()).map_or("C", |name| name))
    }

    fn of(locale: &str) -> Self {
        let locale = locale.to_ascii_lowercase();
        let is_unicode = locale.contains("utf-8") || locale.contains("utf8") || cfg!(not(unix));
        if is_unicode { Self::Unicode } else { Self::Ascii }
    }

    /// Draws a bar of at most `width` characters. A count above zero is always visible.
    pub(super) fn bar(self, count: u64, highest: u64, width: u64) -> String {
        const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let length = |steps: u64| {
            usize::try_from((count * width * steps).div_ceil(highest.max(1))).unwrap_or_default()
        };
        match self {
            Self::Ascii => "#".repeat(length(1)),
            Self::Unicode => {
                let eighths = length(8);
                format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
            }
        }
    }

    /// Formats nanoseconds with about three significant digits.
    pub(super) fn time(self, nanos: f64) -> String {
        let (number, unit) = match nanos {
            ..1e3 => (nanos, "ns"),
            1e3..1e6 if self == Self::Ascii => (nanos / 1e3, "us"),
            1e3..1e6 => (nanos / 1e3, "µs"),
            1e6..1e9 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        format!("{} {unit}", three_digits(number))
    }
}

/// Formats a number with about three significant digits.
pub(super) fn three_digits(number: f64) -> String {
    let digits = match number {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bars_are_formatted() {
        assert_eq!(
            [3.0, 1_500.0, 45_600.0, 999_000.0, 12_340_000.0, 2e9].map(|nanos| Glyphs::Unicode.time(nanos)),
            ["3.00 ns", "1.50 µs", "45.6 µs", "999 µs", "12.3 ms", "2.00 s"]
        );
        assert_eq!(Glyphs::Ascii.time(45_600.0), "45.6 us");
        for (glyphs, least, most) in [(Glyphs::Unicode, "▏", "█"), (Glyphs::Ascii, "#", "#")] {
            assert_eq!(glyphs.bar(0, 10, 40), "");
            assert_eq!(glyphs.bar(1, 1_000_000, 40), least);
            assert_eq!(glyphs.bar(10, 10, 40), most.repeat(40));
        }
    }

    #[test]
    fn a_locale_without_utf_8_has_ascii_only() {
        for (locale, expected) in [
            ("C", Glyphs::Ascii),
            ("POSIX", Glyphs::Ascii),
            ("de_DE.ISO-8859-1", Glyphs::Ascii),
            ("C.UTF-8", Glyphs::Unicode),
            ("en_US.utf8", Glyphs::Unicode),
        ] {
            assert_eq!(Glyphs::of(locale), expected, "{locale}");
        }
    }
}
