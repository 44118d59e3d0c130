//! Builds an EtcdMember. Pure: the caller brings the name's random suffix.

use std::collections::BTreeMap;

use etcd_operator_api::{EtcdCluster, EtcdMember, EtcdMemberSpec, ObservedClusterSpec, labels, names};

use etcd_operator_core::roll::Part;

use super::{BuildError, Owner, address, extra};

/// What makes one new member different from its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewMember<'a> {
    /// Its name, `<cluster>-<suffix>`: chosen before any effect, and never reused, so that a create
    /// that is repeated meets itself (AP-04).
    pub name: &'a str,
    /// It forms the cluster.
    pub seed: bool,
}

/// The EtcdMember with one part of its spec brought up to the target. The rest stays as it is: the medium and the
/// class of a volume cannot change, and its size has a turn of its own.
pub fn updated(member: &EtcdMember, target: &ObservedClusterSpec, part: Part) -> EtcdMember {
    let mut member = member.clone();
    let had = member.spec.clone();
    let spec = &mut member.spec;
    match part {
        Part::Size => spec.storage.size = target.storage.size.clone(),
        Part::Metadata => {
            spec.additional_metadata = target.additional_metadata.clone();
            let now = target.additional_metadata.clone().unwrap_or_default();
            let own =
                labels::for_member(&had.cluster_name, member.metadata.name.as_deref().unwrap_or_default());
            let (ours, theirs) =
                (labels::merged(own, &now.labels), labels::merged(BTreeMap::new(), &now.annotations));
            let had = had.additional_metadata.unwrap_or_default();
            let has = member.metadata.labels.get_or_insert_default();
            extra::take_away(has, &had.labels, &ours);
            has.extend(ours);
            let has = member.metadata.annotations.get_or_insert_default();
            extra::take_away(has, &had.annotations, &theirs);
            has.extend(theirs);
        }
        Part::Pod => {
            *spec = EtcdMemberSpec::from_target(had.cluster_name, had.cluster_token, target);
            spec.storage = had.storage;
            spec.additional_metadata = had.additional_metadata;
            spec.bootstrap = had.bootstrap;
            spec.initial_cluster = had.initial_cluster;
            spec.replicas = had.replicas;
            spec.dormant = had.dormant;
            spec.tls = had.tls;
            spec.restore = had.restore;
        }
    }
    member
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
    // Its own spec tells whose they are.
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(labels::ADDITIONAL_METADATA);
    }
    metadata.annotations = metadata.annotations.filter(|annotations| !annotations.is_empty());
    metadata.finalizers = Some(vec![labels::MEMBER_FINALIZER.to_owned()]);
    let mut member = EtcdMember { metadata, spec, status: None };
    if new.seed {
        let url = address::peer_url(&member);
        member.spec.initial_cluster = names::initial_cluster_entry(&name, &url);
    }
    Ok(member)
}
