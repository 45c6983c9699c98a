//! Parsers of option values. Their errors say what to give; clap adds the name of the option.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};

/// Parses text. Unlike that of clap, the error for other bytes names the option.
pub(crate) fn text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|value| value.into_string().map_err(|_| "it is not UTF-8 text"))
}

/// Parses text that is not empty.
pub(crate) fn some_text() -> impl TypedValueParser<Value = String> {
    text().try_map(|text| if text.is_empty() { Err("it is empty") } else { Ok(text) })
}

/// Parses a number in a range.
pub(crate) fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("give a number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a number that is not 0.
pub(crate) fn at_least_one(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("give a number, at least 1")
}
