//! Owns the identities that etcd and Kubernetes hand out. Decides nothing, does no I/O.
//!
//! etcd's IDs are unsigned 64-bit numbers. JSON numbers cannot carry them, so wherever a person or
//! a file sees one it is sixteen hex digits, zero-padded, as `etcdctl` prints it.

use std::{fmt, str::FromStr};

/// A text that was meant to be an etcd ID and is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an etcd ID: expected 1 to 16 hex digits")]
pub struct BadId {
    text: String,
}

macro_rules! etcd_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                // from_str_radix alone would let a sign through.
                let hex = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
                u64::from_str_radix(text, 16)
                    .ok()
                    .filter(|_| hex)
                    .map(Self)
                    .ok_or_else(|| BadId { text: text.to_owned() })
            }
        }
    };
}

etcd_id!(
    /// The ID etcd gives a member when it is added. A removed ID never comes back.
    MemberId
);
etcd_id!(
    /// The ID a cluster gets at its first start. Two clusters with one ID are the same cluster or a split brain.
    ClusterId
);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub String);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_id!(
    /// A Kubernetes object's UID: the only identity that a deleted and re-created object does not share.
    Uid
);
text_id!(
    /// The name of an EtcdMember, which is also its Pod's name and its `--name`. Never reused.
    MemberName
);
text_id!(
    /// A member's peer URL as etcd stores it. Members are matched by it, because a member's name is
    /// empty until its process has started once, and etcd allows two members of one name.
    PeerUrl
);

#[cfg(test)]
mod tests {
    use super::*;

    // MQ-03
    #[test]
    fn ids_are_sixteen_hex_digits_and_survive_the_round_trip() {
        for (id, text) in [(0xffff_ffff_ffff_fffe, "fffffffffffffffe"), (0xab, "00000000000000ab")] {
            assert_eq!(MemberId(id).to_string(), text);
            assert_eq!(text.parse(), Ok(MemberId(id)));
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "+1", "-1", "0x1", "g", "00000000000000000"] {
            assert!(text.parse::<ClusterId>().is_err(), "{text:?}");
        }
    }
}
