//! Labels, annotations and the finalizer: what selectors, adoption and the kubelet rely on. No I/O.

use std::collections::BTreeMap;

/// Prefix of every key that is the operator's own. Users cannot set such keys through
/// `additionalMetadata`.
pub const PREFIX: &str = "etcd-operator.cozystack.io/";

/// Always [`NAME_VALUE`].
pub const NAME: &str = "app.kubernetes.io/name";
/// Value of [`NAME`].
pub const NAME_VALUE: &str = "etcd";
/// Name of the EtcdCluster.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// Always [`MANAGED_BY_VALUE`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`]. The same as the Go operator's, so that its objects are found.
pub const MANAGED_BY_VALUE: &str = "etcd-operator";
/// Name of the EtcdMember, on a member's objects.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Name of the EtcdCluster. What selectors use.
pub const CLUSTER: &str = "etcd-operator.cozystack.io/cluster";
/// [`ROLE_VOTER`], on a voter's Pod only. A learner's Pod has no such label.
pub const ROLE: &str = "etcd-operator.cozystack.io/role";
/// Value of [`ROLE`].
pub const ROLE_VOTER: &str = "voter";

/// Kubernetes' own: the node's name, as a domain that Pods are kept apart in.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Kubernetes' own: the zone of a node, and since 1.35 of a Pod, which gets it when it is bound.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Finalizer of an EtcdMember: the member is taken out of etcd before the object goes.
pub const MEMBER_FINALIZER: &str = "etcd-operator.cozystack.io/member-cleanup";

/// On an EtcdMember: name of the headless Service that its DNS name is under, where that is not the cluster's
/// (an adopted member).
pub const HEADLESS_SERVICE_NAME: &str = "etcd-operator.cozystack.io/headless-service-name";
/// On an EtcdMember: directory inside the volume that holds the data (an adopted member). Read it through
/// [`data_dir_subpath`].
pub const DATA_DIR_SUBPATH: &str = "etcd-operator.cozystack.io/data-dir-subpath";
/// On an EtcdCluster: "true" means that members encrypt among themselves with certificates they make up
/// (an adopted cluster).
pub const PEER_AUTO_TLS: &str = "etcd-operator.cozystack.io/peer-auto-tls";
/// On an EtcdCluster: "true" stops every effect on the cluster. Its status stays true.
pub const RECONCILE_PAUSED: &str = "etcd-operator.cozystack.io/reconcile-paused";

/// On an EtcdCluster that has lost its quorum for good: the name of the EtcdMember to go on with, and after it, by
/// choice, the word `force` or any other that makes it a new request. Acts at most once.
pub const RECOVER_FROM: &str = "etcd-operator.cozystack.io/recover-from";

/// On a Pod: `--initial-cluster-state`, which the kubelet reads at each start of the container.
pub const INITIAL_CLUSTER_STATE: &str = "etcd-operator.cozystack.io/initial-cluster-state";
/// On a Pod: `--initial-cluster`, which the kubelet reads at each start of the container.
pub const INITIAL_CLUSTER: &str = "etcd-operator.cozystack.io/initial-cluster";
/// On whatever has labels or annotations from `additionalMetadata`: their keys, as JSON, so that they go when the spec no
/// longer has them. Not on an EtcdMember, whose spec tells.
pub const ADDITIONAL_METADATA: &str = "etcd-operator.cozystack.io/additional-metadata";
/// On a Pod: `metadata.generation` of the EtcdMember that it was made from.
pub const MEMBER_GENERATION: &str = "etcd-operator.cozystack.io/member-generation";
/// On an EtcdMember: its `metadata.generation` as it was when that of its spec last changed which only another Pod brings
/// about. A Pod made from an earlier one is outdated. Other parts of the spec count generations too.
pub const POD_GENERATION: &str = "etcd-operator.cozystack.io/pod-generation";
/// On an EtcdMember: the leave to restart or defragment it, as `<reason>/<generation>/<Pod UID>`. Written before
/// asking, cleared when the member is a healthy voter again. Any other open permit means: wait.
pub const PERMIT: &str = "etcd-operator.cozystack.io/permit";

/// Labels of an object that belongs to the cluster as a whole.
#[must_use]
pub fn for_cluster(cluster: &str) -> BTreeMap<String, String> {
    [(NAME, NAME_VALUE), (INSTANCE, cluster), (MANAGED_BY, MANAGED_BY_VALUE), (CLUSTER, cluster)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Labels of an object that belongs to one member. The role is not among them: see [`ROLE`].
#[must_use]
pub fn for_member(cluster: &str, member: &str) -> BTreeMap<String, String> {
    let mut labels = for_cluster(cluster);
    labels.insert(COMPONENT.to_owned(), member.to_owned());
    labels
}

/// Selects every Pod of the cluster.
#[must_use]
pub fn cluster_selector(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(CLUSTER.to_owned(), cluster.to_owned())])
}

/// Selects the Pods of the cluster's voters.
#[must_use]
pub fn voter_selector(cluster: &str) -> BTreeMap<String, String> {
    let mut selector = cluster_selector(cluster);
    selector.insert(ROLE.to_owned(), ROLE_VOTER.to_owned());
    selector
}

/// Selects the Pod of one member.
#[must_use]
pub fn member_selector(cluster: &str, member: &str) -> BTreeMap<String, String> {
    let mut selector = cluster_selector(cluster);
    selector.insert(COMPONENT.to_owned(), member.to_owned());
    selector
}

/// A selector as text, as /scale and list calls take it.
///
/// ```
/// use etcd_operator_api::labels;
/// assert_eq!(labels::as_text(&labels::cluster_selector("db")), "etcd-operator.cozystack.io/cluster=db");
/// ```
#[must_use]
pub fn as_text(selector: &BTreeMap<String, String>) -> String {
    selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The operator's own keys plus those a user asked for. Our own keys win, and a user's key under [`PREFIX`]
/// is dropped: selectors and adoption stand on those.
#[must_use]
pub fn merged(own: BTreeMap<String, String>, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> =
        extra.iter().filter(|(key, _)| !is_reserved(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    all.extend(own);
    all
}

/// Whether a key is the operator's own.
#[must_use]
pub fn is_reserved(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// The value of [`DATA_DIR_SUBPATH`] if it is one safe path component, else `None`, which means the volume's
/// root. It never lets a path leave the volume.
///
/// ```
/// use etcd_operator_api::labels::data_dir_subpath;
/// assert_eq!(data_dir_subpath("default.etcd"), Some("default.etcd"));
/// assert_eq!(data_dir_subpath("../other"), None);
/// ```
#[must_use]
pub fn data_dir_subpath(value: &str) -> Option<&str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let safe =
        !value.is_empty() && value.len() <= 255 && value != "." && value != ".." && value.bytes().all(plain);
    safe.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_go_operator() {
        assert_eq!(
            as_text(&for_member("db", "db-x7k2p")),
            "app.kubernetes.io/component=db-x7k2p,app.kubernetes.io/instance=db,\
             app.kubernetes.io/managed-by=etcd-operator,app.kubernetes.io/name=etcd,\
             etcd-operator.cozystack.io/cluster=db"
        );
        assert_eq!(
            as_text(&voter_selector("db")),
            "etcd-operator.cozystack.io/cluster=db,etcd-operator.cozystack.io/role=voter"
        );
    }

    // VC-08
    #[test]
    fn a_users_metadata_never_replaces_what_selectors_rely_on() {
        let extra: BTreeMap<String, String> =
            [(CLUSTER, "junk"), (ROLE, "junk"), (INSTANCE, "junk"), ("team", "a"), (INITIAL_CLUSTER, "junk")]
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
        let labels = merged(for_cluster("db"), &extra);
        assert_eq!(labels[CLUSTER], "db");
        assert_eq!(labels[INSTANCE], "db");
        assert_eq!(labels["team"], "a");
        assert!(!labels.contains_key(ROLE), "a learner must not become a voter by a user's label");
        assert!(!labels.contains_key(INITIAL_CLUSTER));
    }

    #[test]
    fn a_subpath_that_could_leave_the_volume_is_not_used() {
        for bad in ["", ".", "..", "a/b", "/a", "a\\b", "a\0", "a b", "ä"] {
            assert_eq!(data_dir_subpath(bad), None, "{bad:?}");
        }
    }
}
