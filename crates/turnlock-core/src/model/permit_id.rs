use std::fmt;

use crate::OwnerId;

/// The id of one permit: 16 bytes on the wire, 32 hexadecimal digits for people.
///
/// A hold of several permits has one owner and as many ids: the owner's own, and those that follow from it by counting
/// up the last four bytes. So the owner and the number of permits say all there is to say about a hold.
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
    /// The ids of a hold of so many permits.
    ///
    /// The owner is meant to be 32 hexadecimal digits. Any other text gets ids that follow from it alone.
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

    /// The id on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same for those who name holders by a text.
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
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = if is_id { u128::from_str_radix(text, 16).ok() } else { None };
    number.unwrap_or_else(|| digest(text)).to_be_bytes()
}

/// The 128 bits of FNV-1a: to tell texts apart, not to hide them.
fn digest(text: &str) -> u128 {
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
    fn only_the_last_four_bytes_count_and_they_start_again_at_zero() {
        let [head, zero] = ["aaaaaaaaaaaaaaaaaaaaaaaa", "00000000"];
        assert_eq!(ids(&format!("{head}ffffffff"), 2), [format!("{head}ffffffff"), format!("{head}{zero}")]);
    }

    #[test]
    fn an_owner_that_is_no_id_has_permits_of_its_own() {
        assert_eq!(ids("client:1", 3).len(), 3);
        assert_ne!(ids("client:1", 1), ids("client:2", 1));
        // As many characters as an id has, and as many as a number would take.
        assert_ne!(ids("+0000000000000000000000000000001", 1), ids("00000000000000000000000000000001", 1));
    }
}
