use std::fmt;

use crate::{ClientId, OwnerId};

/// The id of one permit: 16 bytes on the wire, 32 hexadecimal digits as text.
///
/// A hold of several permits has one owner and as many ids: that of the owner, and those that follow from it
/// by incrementing the last four bytes. So the owner and the number of permits identify the whole hold.
///
/// ```
/// use turnlock_core::OwnerId;
/// use turnlock_core::model::PermitId;
///
/// let owner = OwnerId::from_wire("000102030405060708090a0b0c0d0eff");
/// let ids: Vec<_> = PermitId::of_hold(&owner, 2).map(|id| id.to_string()).collect();
/// assert_eq!(ids, ["000102030405060708090a0b0c0d0eff", "000102030405060708090a0b0c0d0f00"]);
/// ```
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "String", from = "String")
)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId([u8; 16]);

impl PermitId {
    /// Returns the ids of a hold of `permits` permits.
    ///
    /// The owner should be 32 hexadecimal digits. The ids of any other owner are derived from a hash of its
    /// text.
    pub fn of_hold(owner: &OwnerId, permits: u32) -> impl Iterator<Item = Self> + use<> {
        let [head @ .., a, b, c, d] = first_bytes(owner.as_str());
        let last = u32::from_be_bytes([a, b, c, d]);
        (0..permits).map(move |offset| {
            let mut bytes = [0; 16];
            bytes[..12].copy_from_slice(&head);
            bytes[12..].copy_from_slice(&last.wrapping_add(offset).to_be_bytes());
            Self(bytes)
        })
    }

    /// Returns the id as on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the id of the record about the holder of a permit.
    ///
    /// It follows from the bytes that all permits of a hold have in common. The id of a permit is random and does not contain
    /// its client, so the record is stored per hold. `None` if `owner` is not the id of a permit.
    ///
    /// ```
    /// # use turnlock_core::OwnerId;
    /// # use turnlock_core::model::PermitId;
    /// let record = |text: &str| PermitId::record_of(&OwnerId::from_wire(text)).map(|id| id.to_string());
    /// let expected = Some("00010203-0405-4607-8809-0a0b00000000".to_owned());
    /// assert_eq!(record("000102030405460788090a0b0c0d0eff"), expected);
    /// assert_eq!(record("000102030405460788090a0b0c0d0f00"), expected);
    /// assert_eq!(record("an owner of another form"), None);
    /// ```
    pub fn record_of(owner: &OwnerId) -> Option<ClientId> {
        let mut bytes = parse(owner.as_str())?.to_be_bytes();
        bytes[12..].fill(0);
        Some(ClientId::from_random(bytes))
    }

    /// Returns the id as an owner, for code that identifies holders by text.
    pub fn to_owner(self) -> OwnerId {
        OwnerId::from_wire(&self.to_string())
    }
}

impl From<PermitId> for String {
    fn from(id: PermitId) -> Self {
        id.to_string()
    }
}

impl From<String> for PermitId {
    fn from(text: String) -> Self {
        Self(first_bytes(&text))
    }
}

fn first_bytes(text: &str) -> [u8; 16] {
    parse(text).unwrap_or_else(|| fnv_1a(text)).to_be_bytes()
}

/// Parses 32 hexadecimal digits.
fn parse(text: &str) -> Option<u128> {
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { u128::from_str_radix(text, 16).ok() } else { None }
}

/// FNV-1a with 128 bits: distinguishes texts, and hides nothing.
fn fnv_1a(text: &str) -> u128 {
    text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

impl fmt::Display for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PermitId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(owner: &str, permits: u32) -> Vec<String> {
        PermitId::of_hold(&OwnerId::from_wire(owner), permits).map(|id| id.to_string()).collect()
    }

    #[test]
    fn the_last_four_bytes_are_incremented_and_wrap_around() {
        let [head, zero] = ["aaaaaaaaaaaaaaaaaaaaaaaa", "00000000"];
        assert_eq!(ids(&format!("{head}ffffffff"), 2), [format!("{head}ffffffff"), format!("{head}{zero}")]);
    }

    #[test]
    fn an_owner_that_is_not_an_id_gets_ids_of_its_own() {
        assert_eq!(ids("client:1", 3).len(), 3);
        assert_ne!(ids("client:1", 1), ids("client:2", 1));
        // As long as an id, and accepted by `from_str_radix`.
        assert_ne!(ids("+0000000000000000000000000000001", 1), ids("00000000000000000000000000000001", 1));
    }
}
