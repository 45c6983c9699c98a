use crc::{CRC_16_XMODEM, Crc};

const SLOTS: u16 = 16_384;
const CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns the Redis Cluster slot of a key or of a sharded channel.
///
/// If the text has a non-empty hash tag (`{tag}`), only the tag is hashed.
pub fn slot(text: &str) -> u16 {
    CHECKSUM.checksum(hash_tag(text).as_bytes()) % SLOTS
}

fn hash_tag(text: &str) -> &str {
    let tag = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    match tag {
        Some(tag) if !tag.is_empty() => tag,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_equal_those_of_redis() {
        // Replies to `CLUSTER KEYSLOT` on Redis 7.0.
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("user:{foo}:name"), slot("foo"));
        assert_eq!(slot("{}foo"), slot("{}foo"));
        assert_ne!(slot("{}foo"), slot("foo"));
        assert_eq!(slot("a{foo}{bar}"), slot("foo"));
        assert_eq!(slot("{foo"), CHECKSUM.checksum(b"{foo") % SLOTS);
    }
}
