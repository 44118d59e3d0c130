//! Owns the two ports through which the actors see Kubernetes: [`Sight`], what the watch stores
//! show, and [`Hands`], the effects and the live reads. Both speak in core's values, so that an
//! actor can be tested against a few lines. Decides nothing, does no I/O itself.

use std::collections::BTreeMap;

use etcd_operator_core::{
    cluster::ClusterAction,
    ids::{MemberName, Uid},
    member::MemberAction,
    reason::Reason,
    report::Report,
    time::Time,
    view::{
        BudgetState, ClusterView, MemberFacts, MemberView, PodView, Presence, PvcView, ServiceKind,
        ServiceState,
    },
};
use etcd_operator_etcd::Target;
use etcd_operator_kubernetes::failure::ApiFailure;
use futures::future::BoxFuture;

/// Which EtcdCluster: by name for lookups, by UID for identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID. A cluster that was deleted and re-created is another cluster.
    pub uid: Uid,
}

/// Which EtcdMember.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberKey {
    /// The cluster that owns it.
    pub cluster: ClusterKey,
    /// Its name.
    pub name: MemberName,
    /// Its UID.
    pub uid: Uid,
}

/// One EtcdMember and what belongs to it, from the stores.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenMember {
    /// The EtcdMember.
    pub member: MemberView,
    /// Its Pod.
    pub pod: Presence<PodView>,
    /// Its PVC.
    pub pvc: Presence<PvcView>,
    /// Where to dial its process; none without a running Pod that is ours.
    pub target: Option<Target>,
    /// Changes whenever one of these objects does.
    pub version: String,
}

/// One cluster, from the stores.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenCluster {
    /// The EtcdCluster; absent when no EtcdCluster of this name and UID is in the store.
    pub cluster: Presence<ClusterView>,
    /// Its Services.
    pub services: BTreeMap<ServiceKind, ServiceState>,
    /// Its PodDisruptionBudget.
    pub budget: BudgetState,
    /// Its EtcdMembers, by owner UID, sorted by name.
    pub members: Vec<SeenMember>,
    /// Changes whenever the EtcdCluster, a Service, the PodDisruptionBudget or an EtcdMember does.
    pub version: String,
    /// Changes whenever the EtcdCluster itself does.
    pub own_version: String,
}

/// What the watch stores show. Never waits, never asks the API server, may be behind.
pub trait Sight: Send + Sync {
    /// The clusters that need a supervisor at this name: the EtcdCluster's own UID, and the owner
    /// UIDs of EtcdMembers that outlived theirs.
    fn owners(&self, namespace: &str, name: &str) -> Vec<ClusterKey>;

    /// Everything about one cluster.
    fn cluster(&self, key: &ClusterKey) -> SeenCluster;
}

/// What an effect achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The object was as wanted already, or gone already.
    Already,
    /// An object of that name is there and is not ours; it was left alone.
    Foreign,
    /// What a live read showed does not bear out the decision any more; nothing was done.
    Outdated,
}

/// An effect in flight.
pub type Effect = BoxFuture<'static, Result<Outcome, ApiFailure>>;

/// The effects on Kubernetes, each passing the one gate, and the live reads.
pub trait Hands: Send + Sync {
    /// Whether the cluster is really gone: NotFound, or another UID. A live GET.
    fn is_gone(&self, key: &ClusterKey) -> BoxFuture<'static, Result<bool, ApiFailure>>;

    /// The cluster and its EtcdMembers, read from the API server itself: a consistent GET and LIST.
    /// Pods, PVCs, Services and the budget come from the stores.
    fn confirm(&self, key: &ClusterKey) -> BoxFuture<'static, Result<SeenCluster, ApiFailure>>;

    /// As [`Hands::confirm`], with the EtcdCluster from the store: a consistent LIST alone.
    fn confirm_members(&self, key: &ClusterKey) -> BoxFuture<'static, Result<SeenCluster, ApiFailure>> {
        self.confirm(key)
    }

    /// Carries out a cluster action. `member_name` is the name for a member to be created.
    fn act(&self, key: &ClusterKey, action: ClusterAction, member_name: MemberName) -> Effect;

    /// Writes the cluster's status; none if nothing would change.
    fn write_status(&self, key: &ClusterKey, report: &Report, now: Time) -> Option<Effect>;

    /// Carries out a member action other than asking the guard, recording and confirming.
    fn act_member(&self, key: &MemberKey, action: MemberAction) -> Effect;

    /// Writes the member's status; none if nothing would change. `trouble` is what keeps it from
    /// being ready, if that is worth a person's attention.
    fn write_member_status(
        &self,
        key: &MemberKey,
        facts: &MemberFacts,
        trouble: Option<(Reason, String)>,
        now: Time,
    ) -> Option<Effect>;

    /// Tells a person of a step, as an Event on the EtcdCluster, with the member that it is about.
    /// Never waits, may be dropped.
    fn tell(&self, key: &ClusterKey, step: Step, about: Option<&MemberName>, note: String);
}

/// A step that a person would want to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The first EtcdMember was created.
    SeedCreated,
    /// The seed formed the cluster and its ID is recorded.
    ClusterFormed,
    /// An EtcdMember was created to grow or to replace.
    MemberCreated,
    /// etcd accepted a learner.
    LearnerAdded,
    /// A learner became a voter.
    MemberPromoted,
    /// etcd removed a member.
    MemberRemoved,
    /// Leadership was handed over before a removal.
    LeaderMoved,
    /// An EtcdMember's deletion was asked for by us.
    MemberDeleted,
    /// A member was paused: its Pod goes, its data stays.
    MemberParked,
    /// A member is to be restarted, so that a changed spec reaches it.
    RestartPermitted,
    /// More room was asked for on a member's volume.
    VolumeGrown,
    /// A paused member is to run again.
    MemberWoken,
    /// A Pod was created.
    PodCreated,
    /// A Pod was deleted.
    PodDeleted,
    /// A volume was created.
    VolumeCreated,
    /// A Service that had been edited was put right.
    ServiceRepaired,
    /// A PodDisruptionBudget was created that lets nobody be evicted.
    BudgetBlocksDrain,
    /// A PodDisruptionBudget that had been edited was put right.
    BudgetRepaired,
    /// A recovery from lost quorum went on, or was refused.
    Recovery(Reason),
    /// A condition changed its reason; the note says to what.
    ConditionChanged(Reason),
}
