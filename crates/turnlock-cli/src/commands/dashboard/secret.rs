use subtle::ConstantTimeEq;
use uuid::Uuid;

/// A text that a request must know. Comparisons take the same time whatever the text is.
pub(super) struct Secret(String);

impl Secret {
    /// Returns a new random secret of 244 bits.
    pub(super) fn random() -> Self {
        Self(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(text).into()
    }

    /// The text, for the one who may know it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_text_matches() {
        let secret = Secret::new("0123456789abcdef".to_owned());
        assert!(secret.matches(b"0123456789abcdef"));
        for other in [&b""[..], b"0123456789abcde", b"0123456789abcdef0", b"1123456789abcdef"] {
            assert!(!secret.matches(other), "{other:?}");
        }
        assert_ne!(Secret::random().reveal(), Secret::random().reveal());
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
