//! The identities of clients and owners, as written on the wire.

use std::cmp::Ordering;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The identity of one client: a random UUID (version 4), written in lower case with dashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Uuid);

impl ClientId {
    /// Creates an identity from 16 random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// Parses an identity. Accepts only the spelling on the wire, no other one of the same UUID.
    pub fn from_wire(text: &str) -> Option<Self> {
        let client = Self(Uuid::try_parse(text).ok()?);
        let mut buffer = [0; Hyphenated::LENGTH];
        let is_canonical = client.0.hyphenated().encode_lower(&mut buffer) == text;
        is_canonical.then_some(client)
    }

    /// Returns the owner with this number at this client.
    ///
    /// A number must be used for one outermost hold and never again: the safety of late requests rests on it.
    pub fn owner(self, number: u64) -> OwnerId {
        let mut bytes = [0; MAX_INLINE];
        self.0.hyphenated().encode_lower(&mut bytes);
        let mut rest = &mut bytes[Hyphenated::LENGTH..];
        let _ = write!(rest, ":{number}");
        let len = MAX_INLINE - rest.len();
        OwnerId(Text::inline(bytes, len))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// The identity of a holder or waiter.
///
/// `<client uuid>:<number>` for turnlock and Redisson, any text for other clients. Owners are compared as
/// texts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OwnerId(Text);

/// The longest text that is kept without an allocation: that of an owner of turnlock or Redisson.
const MAX_INLINE: usize = Hyphenated::LENGTH + ":18446744073709551615".len();

/// A text that is inline if it is short. An owner is created for every hold, and copied for every step.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Text {
    /// Zeros follow the text.
    Inline { len: u8, bytes: [u8; MAX_INLINE] },
    /// Longer than [`MAX_INLINE`].
    Shared(Arc<str>),
}

impl Text {
    fn inline(bytes: [u8; MAX_INLINE], len: usize) -> Self {
        // At most `MAX_INLINE`, which is less than 256.
        Self::Inline { len: u8::try_from(len).unwrap_or(u8::MAX), bytes }
    }
}

impl OwnerId {
    /// Creates an owner from its text on the wire.
    pub fn from_wire(text: &str) -> Self {
        let mut bytes = [0; MAX_INLINE];
        match bytes.get_mut(..text.len()) {
            Some(inline) => {
                inline.copy_from_slice(text.as_bytes());
                Self(Text::inline(bytes, text.len()))
            }
            None => Self(Text::Shared(text.into())),
        }
    }

    /// Returns the text on the wire.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // It was a text when it was copied.
            Text::Inline { len, bytes } => str::from_utf8(&bytes[..usize::from(*len)]).unwrap_or_default(),
            Text::Shared(text) => text,
        }
    }

    /// Returns the client and the number, if the text has the form `<client uuid>:<number>`.
    pub fn parts(&self) -> Option<(ClientId, u64)> {
        let (client, number) = self.as_str().split_once(':')?;
        // `parse` would also accept a leading plus.
        let number = number.bytes().all(|digit| digit.is_ascii_digit()).then_some(number)?;
        Some((ClientId::from_wire(client)?, number.parse().ok()?))
    }

    /// Returns the client that this owner belongs to, if the text names one.
    pub fn client(&self) -> Option<ClientId> {
        self.parts().map(|(client, _)| client)
    }

    /// Returns `true` if this owner belongs to `client`.
    pub fn belongs_to(&self, client: ClientId) -> bool {
        self.as_str().rsplit_once(':').is_some_and(|(uuid, _)| uuid == client.to_string())
    }
}

impl PartialOrd for OwnerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OwnerId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for OwnerId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for OwnerId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::from_wire(&text))
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_the_form_of_redissons() {
        let client = ClientId::from_random([7; 16]);
        let owner = client.owner(12);
        assert_eq!(owner.as_str(), "07070707-0707-4707-8707-070707070707:12");
        assert_eq!(client.owner(0).as_str(), "07070707-0707-4707-8707-070707070707:0");
        assert_eq!(client.owner(u64::MAX).as_str(), format!("{client}:{}", u64::MAX));
        assert!(owner.belongs_to(client));
        assert!(!owner.belongs_to(ClientId::from_random([8; 16])));
        assert_eq!(owner.client(), Some(client));
        for foreign in ["", "a:1", "07070707070747078707070707070707:1", "0707"] {
            assert_eq!(OwnerId::from_wire(foreign).client(), None, "{foreign}");
        }
    }

    #[test]
    fn owners_are_compared_as_texts_whatever_their_lengths() {
        let texts = ["", "a", "a\u{0}", "ab", "b:1"].map(str::to_owned);
        let lengths = [MAX_INLINE - 1, MAX_INLINE, MAX_INLINE + 1, MAX_INLINE * 9];
        let texts: Vec<String> = texts.into_iter().chain(lengths.map(|len| "a".repeat(len))).collect();
        for one in &texts {
            let owner = OwnerId::from_wire(one);
            assert_eq!(owner.as_str(), one);
            for other in &texts {
                let other_owner = OwnerId::from_wire(other);
                assert_eq!(owner == other_owner, one == other, "{one:?} and {other:?}");
                assert_eq!(owner.cmp(&other_owner), one.cmp(other), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn an_owner_is_parsed_only_if_it_has_the_form() {
        let client = ClientId::from_random([7; 16]);
        assert_eq!(client.owner(12).parts(), Some((client, 12)));
        assert_eq!(client.owner(u64::MAX).parts(), Some((client, u64::MAX)));
        for text in [
            "",
            ":",
            "x:1",
            "07070707-0707-4707-8707-070707070707",
            "07070707-0707-4707-8707-070707070707:",
            "07070707-0707-4707-8707-070707070707:+1",
            "07070707-0707-4707-8707-070707070707:1:write",
            "07070707-0707-4707-8707-070707070707:99999999999999999999",
            "07070707070747078707070707070707:1",
            "0A070707-0707-4707-8707-070707070707:1",
        ] {
            assert_eq!(OwnerId::from_wire(text).parts(), None, "{text:?}");
        }
    }
}
