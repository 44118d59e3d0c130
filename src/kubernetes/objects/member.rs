//! Builds an EtcdMember. Pure: the caller brings the name's random suffix.

use etcd_operator_api::{EtcdCluster, EtcdMember, EtcdMemberSpec, ObservedClusterSpec, labels, names};

use super::{BuildError, Owner, address};

/// What makes one new member different from its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMember<'a> {
    /// Its name, `<cluster>-<suffix>`: chosen before any effect, and never reused, so that a create
    /// that is repeated meets itself (AP-04).
    pub name: &'a str,
    /// It forms the cluster.
    pub seed: bool,
}

/// An EtcdMember of `cluster`, copied from the target that is being worked towards, with our
/// finalizer from the first moment (CL-08).
///
/// Only a seed knows its initial cluster, itself alone. Any other member's stays empty until etcd
/// has accepted it, and until then it gets no Pod.
///
/// # Errors
/// If the cluster was not read from the API server, or a name does not fit.
pub fn member(
    cluster: &EtcdCluster,
    target: &ObservedClusterSpec,
    new: NewMember<'_>,
) -> Result<EtcdMember, BuildError> {
    let owner = Owner::of(cluster)?;
    // Checks both halves of the name, so that nothing made up elsewhere gets through.
    let suffix = new.name.strip_prefix(owner.name).and_then(|rest| rest.strip_prefix('-'));
    let name = names::member(owner.name, suffix.unwrap_or(new.name))?;
    let recorded = cluster.status.as_ref().and_then(|status| status.cluster_token.clone());
    let token = recorded.unwrap_or_else(|| names::cluster_token(owner.namespace, owner.name, owner.uid));
    let mut spec = EtcdMemberSpec::from_target(owner.name, token, target);
    spec.bootstrap = new.seed;
    let mut metadata = owner.meta(
        name.clone(),
        labels::for_member(owner.name, &name),
        Default::default(),
        target.additional_metadata.as_ref(),
    );
    metadata.finalizers = Some(vec![labels::MEMBER_FINALIZER.to_owned()]);
    let mut member = EtcdMember { metadata, spec, status: None };
    if new.seed {
        let url = address::peer_url(&member);
        member.spec.initial_cluster = names::initial_cluster_entry(&name, &url);
    }
    Ok(member)
}
