//! Settings of clients and stores: one list, that code, URLs and files set.
//!
//! The macro [`settings!`](crate::settings!) declares a list. It makes the struct, the parser of its texts and the
//! rule by which two lists are merged: a setting in both must be the same.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid setting `{setting}`: {reason}")]
pub struct SettingError {
    /// The name of the setting.
    pub setting: &'static str,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

impl SettingError {
    /// Creates an error for the setting of this name.
    pub fn new(setting: &'static str, reason: impl Into<String>) -> Self {
        Self { setting, reason: reason.into() }
    }
}

/// A text that `Debug` does not print: a password, or a URL that can contain one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A value that a URL or a file can have as text.
pub trait FromText: Sized {
    /// Parses the text. The error does not show it: it can be a password in the wrong place.
    fn from_text(text: &str) -> Result<Self, &'static str>;
}

macro_rules! from_text {
    ($($type:ty: $parse:expr;)*) => {$(
        impl FromText for $type {
            fn from_text(text: &str) -> Result<Self, &'static str> {
                let parse: fn(&str) -> _ = $parse;
                parse(text)
            }
        }
    )*};
}

from_text! {
    String: |text| Ok(text.to_owned());
    Secret: |text| Ok(Self::new(text));
    PathBuf: |text| Ok(text.into());
    bool: |text| match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("must be yes or no"),
    };
    u32: |text| {
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        is_digits.then(|| text.parse().ok()).flatten().ok_or("not a number, or too large")
    };
    Duration: |text| {
        humantime::parse_duration(text).map_err(|_| "must be a duration with its unit, as 500ms, 5s or 2m")
    };
}

/// Decodes `%41` and the like in a URL.
pub fn percent_decode<'a>(setting: &'static str, text: &'a str) -> Result<Cow<'a, str>, SettingError> {
    percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| SettingError::new(setting, "the characters written with % are not UTF-8"))
}

/// Merges the values of one setting. Fails if they differ.
#[doc(hidden)]
pub fn merge<T: PartialEq>(
    setting: &'static str,
    one: Option<T>,
    other: Option<T>,
) -> Result<Option<T>, SettingError> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Err(SettingError::new(
            setting,
            "differs between the URL and the other settings; set it in one place only",
        )),
        (one, other) => Ok(one.or(other)),
    }
}

/// Sets a setting from its text. `name` is the name that the text was under.
#[doc(hidden)]
pub fn set_once<T: FromText>(
    value: &mut Option<T>,
    setting: &'static str,
    name: &'static str,
    text: &str,
) -> Result<(), SettingError> {
    let parsed = T::from_text(text).map_err(|reason| SettingError::new(name, reason))?;
    match value.replace(parsed) {
        None => Ok(()),
        Some(_) => Err(SettingError::new(setting, "set twice; leave one of them out")),
    }
}

/// Declares a list of settings: a struct in which each setting is an `Option`.
///
/// Settings `in_text` can be set by texts. Those `in_code` have no text, so that no URL parameter and no file can set them. `parts` are other lists. A
/// setting whose name in texts is not that of its field is declared `field as "name"`.
///
/// The struct gets these functions, with the visibility of the fields:
///
/// - `names()`: the names of the settings in texts.
/// - `set(name, text)`: sets the setting of this name once; `false` if there is no such setting.
/// - `merge(self, other)`: combines two lists. A setting in both must be the same.
/// - `first_set()`, `first_set_in_parts()`: the name of a setting that is set.
///
/// # Examples
///
/// ```
/// turnlock_store::settings! {
///     /// The settings of a store.
///     #[derive(Clone, Debug, Default)]
///     pub struct ExampleSettings;
///     pub(crate) in_text {
///         /// The number of the database.
///         database as "db": u32,
///     }
///     in_code { password: turnlock_store::Secret, }
///     parts {}
/// }
///
/// let mut settings = ExampleSettings::default();
/// assert!(settings.set("db", "3")? && !settings.set("password", "x")?);
/// assert!(settings.merge(ExampleSettings { database: Some(4), password: None }).is_err());
/// # Ok::<(), turnlock_store::SettingError>(())
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident;
        $vis:vis in_text { $($(#[$doc:meta])* $field:ident $(as $text:literal)?: $type:ty,)* }
        in_code { $($(#[$code_doc:meta])* $code:ident: $code_type:ty,)* }
        parts { $($(#[$cfg:meta])* $part:ident: $part_type:ty,)* }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])* $vis $field: Option<$type>,)*
            $($(#[$code_doc])* $vis $code: Option<$code_type>,)*
            $($(#[$cfg])* $vis $part: $part_type,)*
        }

        #[allow(dead_code, clippy::allow_attributes, reason = "not every list needs all of them")]
        impl $name {
            /// Returns the names of the settings in texts.
            $vis fn names() -> Vec<&'static str> {
                #[allow(unused_mut, clippy::allow_attributes, reason = "not every list has parts")]
                let mut names = vec![$($crate::settings!(@name $field $($text)?)),*];
                $($(#[$cfg])* names.extend(<$part_type>::names());)*
                names
            }

            /// Sets the setting of this name from its text. Returns `false` if there is no such setting.
            $vis fn set(&mut self, name: &str, text: &str) -> Result<bool, $crate::SettingError> {
                $(
                    let known = $crate::settings!(@name $field $($text)?);
                    if name == known {
                        $crate::set_once(&mut self.$field, stringify!($field), known, text)?;
                        return Ok(true);
                    }
                )*
                $($(#[$cfg])* if self.$part.set(name, text)? { return Ok(true); })*
                Ok(false)
            }

            /// Combines two lists. A setting in both must be the same.
            $vis fn merge(self, other: Self) -> Result<Self, $crate::SettingError> {
                Ok(Self {
                    $($field: $crate::merge(stringify!($field), self.$field, other.$field)?,)*
                    $($code: $crate::merge(stringify!($code), self.$code, other.$code)?,)*
                    $($(#[$cfg])* $part: self.$part.merge(other.$part)?,)*
                })
            }

            /// Returns the name of a setting that is set.
            $vis fn first_set(&self) -> Option<&'static str> {
                $(if self.$field.is_some() { return Some(stringify!($field)); })*
                if let Some(name) = self.first_set_in_parts() { return Some(name); }
                $(if self.$code.is_some() { return Some(stringify!($code)); })*
                None
            }

            /// Returns the name of a setting that is set in a part.
            $vis fn first_set_in_parts(&self) -> Option<&'static str> {
                $($(#[$cfg])* if let Some(name) = self.$part.first_set() { return Some(name); })*
                None
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $text:literal) => { $text };
}
