//! Names of every object, and the addresses that follow from them. No I/O.
//!
//! All of them are fixed: a running cluster's peer URLs and volumes are found by them.

/// Port on which members serve clients.
pub const CLIENT_PORT: u16 = 2379;
/// Port on which members talk to each other.
pub const PEER_PORT: u16 = 2380;
/// Port of /metrics, /health, /readyz and /livez. Plain HTTP, always on.
pub const METRICS_PORT: u16 = 2381;
/// The container that runs etcd.
pub const CONTAINER: &str = "etcd";
/// The volume with the data, in the Pod.
pub const DATA_VOLUME: &str = "data";

/// Longest name of a cluster: `<cluster>-client` is a Service, and Services may have 63 characters.
/// A member's name (`<cluster>-` and 5 more) is its Pod's hostname and fits too.
pub const MAX_CLUSTER_NAME: usize = 56;

/// Characters of a member's suffix: those that Kubernetes itself uses for generated names. No vowels and none
/// that are easily confused.
pub const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters in a member's suffix. 27^5 is 14 million, and a name is never used twice.
pub const SUFFIX_LEN: usize = 5;

/// Why a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is too long for the objects that are named after the cluster.
    #[error(
        "the cluster's name has {len} characters and may have {MAX_CLUSTER_NAME}, because the Service <name>-client may have 63. Create the cluster under a shorter name"
    )]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// The name cannot be the name of a Service.
    #[error(
        "the cluster's name {name:?} cannot be the name of a Service and of host names: it must consist of a-z, 0-9 and '-', without dots. Create the cluster under another name"
    )]
    NotALabel {
        /// The name.
        name: String,
    },
    /// A suffix that was not made by [`suffix`].
    #[error("the suffix {suffix:?} is not {SUFFIX_LEN} characters of the suffix alphabet")]
    BadSuffix {
        /// The suffix.
        suffix: String,
    },
}

/// Checks that every name derived from a cluster's name can exist.
///
/// A name that begins with a digit passes: Kubernetes 1.36 and newer take it for a Service. Older ones refuse the
/// Service itself, in their own words.
///
/// # Errors
/// [`NameError::TooLong`] or [`NameError::NotALabel`]. The CRD refuses the same; this is for objects that
/// were stored under an older CRD.
pub fn check_cluster_name(cluster: &str) -> Result<(), NameError> {
    if cluster.len() > MAX_CLUSTER_NAME {
        return Err(NameError::TooLong { len: cluster.len() });
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let hyphen_outside = cluster.starts_with('-') || cluster.ends_with('-');
    if !cluster.is_empty() && cluster.bytes().all(plain) && !hyphen_outside {
        Ok(())
    } else {
        Err(NameError::NotALabel { name: cluster.to_owned() })
    }
}

/// Makes a suffix from five random numbers. The caller brings the randomness, so that a test can repeat it.
///
/// ```
/// assert_eq!(etcd_operator_api::names::suffix([0, 1, 26, 27, 255]), "bc9bq");
/// ```
#[must_use]
pub fn suffix(random: [u8; SUFFIX_LEN]) -> String {
    // 256 is no multiple of 27, so some letters are likelier by one part in ten. That costs nothing
    // here: a suffix need not be secret, only unused.
    random.iter().map(|&r| char::from(SUFFIX_ALPHABET[usize::from(r) % SUFFIX_ALPHABET.len()])).collect()
}

/// Name of a new member: `<cluster>-<suffix>`.
///
/// # Errors
/// [`NameError`] if the cluster's name or the suffix does not fit. Whether the name was used before is for the
/// caller to know.
///
/// ```
/// use etcd_operator_api::names;
/// assert_eq!(names::member("db", "x7k2p").unwrap(), "db-x7k2p");
/// ```
pub fn member(cluster: &str, suffix: &str) -> Result<String, NameError> {
    check_cluster_name(cluster)?;
    if suffix.len() != SUFFIX_LEN || !suffix.bytes().all(|b| SUFFIX_ALPHABET.contains(&b)) {
        return Err(NameError::BadSuffix { suffix: suffix.to_owned() });
    }
    Ok(format!("{cluster}-{suffix}"))
}

/// Name of the PersistentVolumeClaim of a member.
#[must_use]
pub fn pvc(member: &str) -> String {
    format!("data-{member}")
}

/// Name of the headless Service, under which members have their DNS names.
#[must_use]
pub fn headless_service(cluster: &str) -> String {
    cluster.to_owned()
}

/// Name of the Service for clients.
#[must_use]
pub fn client_service(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// Name of the PodDisruptionBudget.
#[must_use]
pub fn disruption_budget(cluster: &str) -> String {
    cluster.to_owned()
}

/// Name of the Certificate for the client port.
#[must_use]
pub fn server_certificate(cluster: &str) -> String {
    format!("{cluster}-server")
}

/// Name of the Certificate that the operator presents.
#[must_use]
pub fn operator_client_certificate(cluster: &str) -> String {
    format!("{cluster}-operator-client")
}

/// Name of the Certificate for the peer port.
#[must_use]
pub fn peer_certificate(cluster: &str) -> String {
    format!("{cluster}-peer")
}

/// Name of the Secret that a Certificate is stored in.
///
/// ```
/// use etcd_operator_api::names;
/// assert_eq!(names::certificate_secret(&names::server_certificate("db")), "db-server-tls");
/// ```
#[must_use]
pub fn certificate_secret(certificate: &str) -> String {
    format!("{certificate}-tls")
}

/// `--initial-cluster-token` of a new cluster. The UID keeps two clusters that had the same name apart.
///
/// ```
/// assert_eq!(etcd_operator_api::names::cluster_token("ns", "db", "1-2-3"), "ns-db-1-2-3");
/// ```
#[must_use]
pub fn cluster_token(namespace: &str, cluster: &str, uid: &str) -> String {
    format!("{namespace}-{cluster}-{uid}")
}

/// Whether a port speaks TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    #[default]
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// DNS name of a member. `service` is [`headless_service`], or what an adopted member's annotation says. It does
/// not contain the cluster domain, so it resolves in clusters of any domain.
///
/// ```
/// assert_eq!(etcd_operator_api::names::host("db-x7k2p", "db", "ns"), "db-x7k2p.db.ns.svc");
/// ```
#[must_use]
pub fn host(member: &str, service: &str, namespace: &str) -> String {
    format!("{member}.{service}.{namespace}.svc")
}

/// Peer URL of a member. Members are matched by it, so it must stay the same for the member's whole life.
///
/// ```
/// use etcd_operator_api::names::{Scheme, peer_url};
/// assert_eq!(peer_url(Scheme::Http, "db-x7k2p", "db", "ns"), "http://db-x7k2p.db.ns.svc:2380");
/// ```
#[must_use]
pub fn peer_url(scheme: Scheme, member: &str, service: &str, namespace: &str) -> String {
    format!("{}://{}:{PEER_PORT}", scheme.as_str(), host(member, service, namespace))
}

/// Client URL of a member, as it advertises it.
///
/// ```
/// use etcd_operator_api::names::{Scheme, client_url};
/// assert_eq!(client_url(Scheme::Https, "db-x7k2p", "db", "ns"), "https://db-x7k2p.db.ns.svc:2379");
/// ```
#[must_use]
pub fn client_url(scheme: Scheme, member: &str, service: &str, namespace: &str) -> String {
    format!("{}://{}:{CLIENT_PORT}", scheme.as_str(), host(member, service, namespace))
}

/// One entry of `--initial-cluster`: `<member>=<peer URL>`.
#[must_use]
pub fn initial_cluster_entry(member: &str, peer_url: &str) -> String {
    format!("{member}={peer_url}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cluster_name_of_56_fits_all_derived_names_and_one_of_57_does_not() {
        let fits = "a".repeat(MAX_CLUSTER_NAME);
        assert_eq!(check_cluster_name(&fits), Ok(()));
        assert!(client_service(&fits).len() <= 63);
        assert!(member(&fits, "bbbbb").unwrap().len() <= 63);
        assert_eq!(check_cluster_name(&format!("{fits}a")), Err(NameError::TooLong { len: 57 }));
    }

    #[test]
    fn names_that_no_service_can_have_are_refused_with_advice() {
        for bad in ["", "a.b", "a-", "-a", "A", "a_b"] {
            let error = check_cluster_name(bad).unwrap_err();
            assert!(error.to_string().contains("another name"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_suffix_of_another_making_is_refused() {
        for bad in ["", "bbbb", "bbbbbb", "aaaaa", "BBBBB", "b.bbb"] {
            assert!(matches!(member("db", bad), Err(NameError::BadSuffix { .. })), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_suffix_makes_a_name(random: [u8; SUFFIX_LEN]) {
            prop_assert!(member("db", &suffix(random)).is_ok());
        }
    }
}
