//! What can happen, in words: to a cluster, for a time, to the operator. Pure.

use std::time::Duration;

use crate::spec::Edit;

/// One member of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The leader.
    Leader,
    /// The n-th by name, counted round and round.
    Nth(usize),
    /// The one that formed its cluster: of the first cluster that bears the loss and still has it, begun with the one that
    /// was to be hit. Nobody else is hit in its place.
    Seed,
}

/// Something that happens to one cluster at one moment. What destroys data comes at most once in a round, before whatever
/// may take another member away, and to a cluster that bears it: a majority of the data always stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The number of members is changed.
    Scaled(i32),
    /// The same, and after a moment another one.
    MindChanged(i32, Duration, i32),
    /// An EtcdMember is deleted.
    MemberDeleted(Who),
    /// Two EtcdMembers are deleted in the same second, one of them the leader's.
    TwoMembersDeleted(usize),
    /// A Pod is deleted.
    PodDeleted(Who),
    /// A Pod is evicted.
    PodEvicted(Who),
    /// Every Pod is deleted at once.
    AllPodsDeleted,
    /// A container is killed.
    ContainerKilled(Who),
    /// A person gives a Service another selector and other ports.
    ServiceEdited {
        /// The client Service, or the headless one.
        client: bool,
    },
    /// A Service is deleted.
    ServiceDeleted {
        /// The client Service, or the headless one.
        client: bool,
    },
    /// The labels that selectors and adoption stand on are taken off a Pod, its volume, and the Services.
    LabelsStripped(Who),
    /// Everything in a member's data directory is deleted, and its process ends.
    DataWiped(Who),
    /// A volume is deleted under its Pod, which goes on for as long as nobody ends it.
    VolumeDeleted(Who),
    /// A volume is deleted with its Pod, and then a person deletes the EtcdMember.
    VolumeLost(usize),
    /// The spec is edited.
    Edited(Edit),
}

/// Something that lasts, and then ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// No other Pod reaches this member, and it reaches none.
    CutOff(usize, Who),
    /// This member's process stands still.
    StandsStill(usize, Who),
    /// A node of the three loses its power.
    NodeLost(usize),
    /// A node's kubelet does not run; its containers go on.
    KubeletLost(usize),
    /// A node is cordoned and its Pods are evicted, as `kubectl drain` does; then it takes Pods again. Where a budget keeps
    /// a Pod, the drain is given up at the end.
    Drained(usize),
    /// A cluster has no replicas; then as many as it should.
    Paused(usize),
    /// Packets between the operator and the API server are lost.
    OperatorCutOff,
}

/// Something that happens to the operator. At most one in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is killed and comes back.
    Killed {
        /// As the same Pod, which resumes its Lease, or as another one, which has to wait for it.
        same: bool,
    },
    /// It ends at the first of these points, in its next life at the next one; those with `lost` only lose an answer.
    Failpoints(Vec<String>),
    /// It stands still until a second operator has taken its Lease, and then for this long.
    Frozen(Duration),
    /// It is asked to end while a second one waits.
    HandsOver,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// To the cluster with this number.
    Blow(usize, Blow),
    /// For this long.
    Lasting(Lasting, Duration),
    /// To the operator.
    Trouble(Trouble),
}

impl Fault {
    /// What the summary counts it as.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Fault::Blow(_, blow) => match blow {
                Blow::Scaled(_) => "scaled",
                Blow::MindChanged(..) => "scaled, and a change of mind",
                Blow::MemberDeleted(Who::Leader) => "leader's EtcdMember deleted",
                Blow::MemberDeleted(_) => "EtcdMember deleted",
                Blow::TwoMembersDeleted(_) => "two EtcdMembers deleted",
                Blow::PodDeleted(Who::Leader) => "leader's Pod deleted",
                Blow::PodDeleted(_) => "Pod deleted",
                Blow::PodEvicted(_) => "Pod evicted",
                Blow::AllPodsDeleted => "all Pods of a cluster deleted",
                Blow::ContainerKilled(Who::Leader) => "leader's container killed",
                Blow::ContainerKilled(_) => "container killed",
                Blow::ServiceEdited { .. } => "Service edited",
                Blow::ServiceDeleted { .. } => "Service deleted",
                Blow::LabelsStripped(_) => "labels stripped",
                Blow::DataWiped(Who::Seed) => "data directory wiped, the seed's",
                Blow::DataWiped(_) => "data directory wiped",
                Blow::VolumeDeleted(Who::Seed) => "volume deleted under its Pod, the seed's",
                Blow::VolumeDeleted(_) => "volume deleted under its Pod",
                Blow::VolumeLost(_) => "volume lost, EtcdMember deleted",
                Blow::Edited(Edit::Resources(_)) => "resources edited",
                Blow::Edited(Edit::Tuning(_)) => "options edited",
                Blow::Edited(Edit::Metadata(_)) => "additionalMetadata edited",
                Blow::Edited(Edit::Strategy { .. }) => "updateStrategy edited",
                Blow::Edited(Edit::Version(_)) => "upgrade to the next minor",
            },
            Fault::Lasting(lasting, _) => match lasting {
                Lasting::CutOff(_, Who::Leader) => "leader cut off from its peers",
                Lasting::CutOff(..) => "member cut off from its peers",
                Lasting::StandsStill(_, Who::Leader) => "leader stands still",
                Lasting::StandsStill(..) => "member stands still",
                Lasting::NodeLost(_) => "node lost",
                Lasting::KubeletLost(_) => "kubelet lost",
                Lasting::Drained(_) => "node drained",
                Lasting::Paused(_) => "paused and resumed",
                Lasting::OperatorCutOff => "operator cut off from the API server",
            },
            Fault::Trouble(trouble) => match trouble {
                Trouble::Killed { .. } => "operator killed",
                Trouble::Failpoints(_) => "operator at failpoints",
                Trouble::Frozen(_) => "operator frozen until another has its Lease",
                Trouble::HandsOver => "operator hands over",
            },
        }
    }
}
