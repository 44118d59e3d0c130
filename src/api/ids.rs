//! etcd's 64-bit IDs as text. No I/O.
//!
//! JSON numbers are exact only up to 2^53, so an ID on the wire is always a string: 16 hex digits, lower
//! case, zero-padded, which is also what `etcdctl` prints for IDs that use all 64 bits.

/// Writes a member ID or cluster ID the way it stands in a status, a log line and a metric label.
///
/// ```
/// assert_eq!(etcd_operator_api::format_id(0xab), "00000000000000ab");
/// ```
#[must_use]
pub fn format_id(id: u64) -> String {
    format!("{id:016x}")
}

/// Reads an ID back. Shorter strings are accepted too, because `etcdctl` drops leading zeros.
/// Anything that is not 1 to 16 hex digits is `None`, never a partial value.
///
/// ```
/// assert_eq!(etcd_operator_api::parse_id("ab"), Some(0xab));
/// assert_eq!(etcd_operator_api::parse_id("+ab"), None);
/// ```
#[must_use]
pub fn parse_id(text: &str) -> Option<u64> {
    let hex = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { u64::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // MQ-03
    #[test]
    fn ids_keep_all_their_bits_and_their_leading_zeros() {
        assert_eq!(format_id(0xffff_ffff_ffff_fffe), "fffffffffffffffe");
        assert_eq!(format_id(0xab), "00000000000000ab");
        assert_eq!(parse_id("fffffffffffffffe"), Some(0xffff_ffff_ffff_fffe));
        assert_eq!(parse_id("00000000000000ab"), Some(0xab));
    }

    // MQ-03
    #[test]
    fn ids_survive_a_round_trip_through_a_member_status() {
        for id in [0xffff_ffff_ffff_fffe_u64, 0xab] {
            let status = crate::EtcdMemberStatus { member_id: Some(format_id(id)), ..Default::default() };
            let json = serde_json::to_string(&status).unwrap();
            let back: crate::EtcdMemberStatus = serde_json::from_str(&json).unwrap();
            assert_eq!(back.member_id.as_deref().and_then(parse_id), Some(id), "through {json}");
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "g", "0x12", "-1", "00000000000000000ab", "ab "] {
            assert_eq!(parse_id(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_id_round_trips(id: u64) {
            prop_assert_eq!(parse_id(&format_id(id)), Some(id));
        }
    }
}
