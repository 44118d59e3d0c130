//! Owns etcd versions. Does no I/O.

use std::{fmt, str::FromStr};

/// An etcd version, `major.minor.patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtcdVersion {
    /// First number.
    pub major: u32,
    /// Second number. Flags differ between minors.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

/// A text that is not `major.minor.patch`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an etcd version: expected three numbers such as 3.6.16")]
pub struct BadVersion {
    text: String,
}

impl EtcdVersion {
    /// A version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The first version with `/livez` and `/readyz`, without which a Pod cannot be probed safely.
    pub const OLDEST: EtcdVersion = EtcdVersion::new(3, 5, 11);
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for EtcdVersion {
    type Err = BadVersion;
    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let number = |part: Option<&str>| {
            part.filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|p| p.parse().ok())
        };
        let mut parts = text.split('.');
        let version = match (number(parts.next()), number(parts.next()), number(parts.next())) {
            (Some(major), Some(minor), Some(patch)) if parts.next().is_none() => {
                Some(Self { major, minor, patch })
            }
            _ => None,
        };
        version.ok_or_else(|| BadVersion { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number_not_by_text() {
        let parse = |t: &str| t.parse::<EtcdVersion>().unwrap();
        assert!(parse("3.5.9") < EtcdVersion::OLDEST);
        assert!(parse("3.5.11") < parse("3.10.0"));
    }

    #[test]
    fn what_is_not_a_version_is_refused() {
        for text in ["", "3", "3.6", "3.6.x", "v3.6.1", "3.6.1.2", "3.6.-1", "99999999999.0.0"] {
            assert!(text.parse::<EtcdVersion>().is_err(), "{text:?}");
        }
    }
}
