//! Decides whether etcd can get from the versions that run to another one. Does no I/O.
//!
//! A step that is refused is not taken up: the cluster goes on with the version that it has, and says why.

use crate::{
    reason::Reason,
    version::EtcdVersion,
    view::{ClusterSituation, MemberFacts},
};

/// The first 3.5 whose membership is the same in both of its stores, so that 3.6, which reads the other one, brings
/// no removed member back (etcd 3.5.26; UP-04).
pub const SAFE_FOR_3_6: EtcdVersion = EtcdVersion::new(3, 5, 26);

/// The version that a member runs: what its process last reported, else what it was made to run.
fn running(m: &MemberFacts) -> Option<EtcdVersion> {
    m.member.recorded.version.or(m.member.blueprint.version)
}

/// Why the version that the spec asks for cannot be reached, in words; none if it can, or is no other one.
///
/// etcd allows any move between patches, and upwards one minor at a time. Its cluster version is that of its oldest
/// member, and below that no member starts.
pub fn refused(s: &ClusterSituation) -> Option<(Reason, String)> {
    let target = s.cluster.recorded.target.as_ref()?;
    let wanted = s.cluster.blueprint.version?;
    if target.blueprint.version == Some(wanted) || s.cluster.recorded.cluster_id.is_none() {
        return None;
    }
    let all: Vec<(&MemberFacts, EtcdVersion)> =
        s.members.iter().filter_map(|m| Some((m, running(m)?))).collect();
    let oldest = all.iter().map(|(_, version)| *version).min()?;
    let (has, wants) = ((oldest.major, oldest.minor), (wanted.major, wanted.minor));
    let words = if has.0 != wants.0 || wants.1 > has.1 + 1 {
        format!(
            "etcd {oldest} cannot become {wanted}: it moves one minor at a time. Set version to {}.{} first",
            has.0,
            has.1 + 1
        )
    } else if wants < has {
        format!(
            "etcd {oldest} cannot go back to {wanted}: the cluster has the data format of {}.{} by now. Set version to {}.{} or newer",
            has.0, has.1, has.0, has.1
        )
    } else if has == (3, 5) && wants == (3, 6) {
        let old = all.iter().find(|(_, version)| *version < SAFE_FOR_3_6)?;
        format!(
            "member {} runs etcd {}, and before {SAFE_FOR_3_6} an upgrade to 3.6 can bring removed members back. Set version to {SAFE_FOR_3_6} or a newer 3.5 first",
            old.0.member.name, old.1
        )
    } else {
        return None;
    };
    Some((Reason::VersionStepRefused, words))
}
