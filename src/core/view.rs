//! Owns the views that decisions are taken on: what Kubernetes and etcd show at one moment, in
//! plain values. Decides nothing, does no I/O. A view is taken, used for one decision, and dropped.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use crate::{
    etcd::{ListedMember, Look, MemberList},
    ids::{ClusterId, MemberId, MemberName, PeerUrl, Uid},
    reason::Reason,
    recovery::{Recovery, RefusedRequest, Role},
    roll::{Blueprint, Permit},
    time::Time,
    version::EtcdVersion,
};

/// Whether an object is there, as far as we know.
///
/// `Absent` may come from a store that is behind. An effect that rests on it asks the API server
/// first, or is a create by name that the API server itself refuses when the object exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Presence<T> {
    /// Nobody has looked yet. Never a reason for an effect.
    Unknown,
    /// Looked for and not found.
    Absent,
    /// Found.
    Present(T),
}

impl<T> Presence<T> {
    /// The object, if it is there.
    pub fn present(&self) -> Option<&T> {
        match self {
            Presence::Present(object) => Some(object),
            Presence::Unknown | Presence::Absent => None,
        }
    }
}

/// The EtcdCluster, as far as decisions need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// Its UID, which every object of ours carries as owner.
    pub uid: Uid,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// A person asked us to keep our hands off (annotation `reconcile-paused`).
    pub paused: bool,
    /// What the spec asks for that this build does not do, or that cannot work: field and reason.
    pub refused: Vec<RefusedField>,
    /// The number of voters that the spec asks for.
    pub replicas: usize,
    /// The rest of what members are made from, as one comparable value (the observed spec without replicas).
    pub template: String,
    /// The parts of the template that reach existing members in different ways.
    pub blueprint: Blueprint,
    /// Members that run may be restarted for a changed spec (`updateStrategy` is not OnDelete).
    pub rolls: bool,
    /// The member that a person wants the cluster recovered from, and how (annotation `recover-from`).
    pub recover_from: Option<String>,
    /// What the spec asks for and may do harm. It is told and stops nothing.
    pub warnings: Vec<SpecWarning>,
    /// Seconds after which Progressing stops claiming progress.
    pub progress_deadline_seconds: u64,
    /// What its status records.
    pub recorded: ClusterRecord,
}

/// A spec field that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedField {
    /// The field's path, such as `spec.tls`.
    pub field: String,
    /// A sentence that says why, and what to do.
    pub why: String,
    /// It is right, but this build does not do it yet (as against: it can never work).
    pub not_yet: bool,
}

/// Something in a spec that may do harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecWarning {
    /// Its reason.
    pub reason: Reason,
    /// A sentence that says what may happen, and what to do.
    pub words: String,
}

/// What an EtcdCluster's status records and decisions rely on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterRecord {
    /// The cluster ID. Once recorded, no member is ever started as a new cluster again.
    pub cluster_id: Option<ClusterId>,
    /// The target being worked on: replicas and template. None before the first turn.
    pub target: Option<Target>,
    /// When the claim of progress towards the target ends.
    pub progress_deadline: Option<Time>,
    /// Whether members that differ from the target follow it. None before this operator first saw the cluster.
    pub drift: Option<Drift>,
    /// The recovery that was taken up last.
    pub recovery: Option<Recovery>,
    /// The request for a recovery that stands and is refused.
    pub refused_recovery: Option<RefusedRequest>,
}

/// What becomes of members that were made from another spec than the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drift {
    /// They were there when this operator took the cluster over, and stay as they are until the spec is edited.
    Accepted,
    /// They follow the target.
    Rolled,
}

/// What is being worked towards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The number of voters.
    pub replicas: usize,
    /// See [`ClusterView::template`].
    pub template: String,
    /// See [`ClusterView::blueprint`].
    pub blueprint: Blueprint,
}

/// One Service of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServiceState {
    /// The store is not filled yet.
    Unknown,
    /// Not there.
    Absent,
    /// There, ours, and as it should be.
    Right,
    /// There and ours, but edited.
    Drifted,
    /// There, and not ours.
    Foreign,
}

/// Which Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServiceKind {
    /// `<cluster>`: gives every member its DNS name.
    Headless,
    /// `<cluster>-client`: leads clients to voters.
    Client,
}

/// The PodDisruptionBudget of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetState {
    /// The store is not filled yet.
    Unknown,
    /// Not there.
    Absent,
    /// There, and not ours.
    Foreign,
    /// There and ours.
    Present {
        /// How many of the Pods that it selects it keeps from being evicted; 0 if that is not a plain number.
        min_available: usize,
        /// Every other field of ours is as it should be.
        right: bool,
    },
}

/// One EtcdMember.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberView {
    /// Its name.
    pub name: MemberName,
    /// Its UID.
    pub uid: Uid,
    /// Where its peers find it; its identity in etcd's list.
    pub peer_url: PeerUrl,
    /// It forms the cluster (`spec.bootstrap`).
    pub seed: bool,
    /// The cluster ID that etcd computes when this member forms a cluster alone: a hash of its peer URL and
    /// the cluster token.
    pub founds: ClusterId,
    /// Its Pod is wanted gone while its identity and volume stay (`spec.dormant`).
    pub dormant: bool,
    /// Its data is in its Pod's memory and goes with it (`spec.storage.medium: Memory`). It has no PVC.
    pub memory: bool,
    /// `spec.initialCluster`: empty until etcd has accepted the member.
    pub initial_cluster: String,
    /// When it was created, by the API server's clock.
    pub created: Time,
    /// When its deletion was asked for, by the API server's clock.
    pub deleting: Option<Time>,
    /// It still carries our finalizer.
    pub finalizer: bool,
    /// What it is made from.
    pub blueprint: Blueprint,
    /// `metadata.generation`: counts the changes of its spec.
    pub generation: u64,
    /// Its generation when the part of its spec last changed that only another Pod brings about; 0 if that has not
    /// happened since it was made, or was never noted.
    pub pod_generation: u64,
    /// The leave to restart it, while that is open.
    pub permit: Option<Permit>,
    /// What its status records.
    pub recorded: MemberRecord,
}

impl MemberView {
    /// Whether it is to stay.
    pub fn stays(&self) -> bool {
        self.deleting.is_none()
    }
}

/// What an EtcdMember's status records and decisions rely on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct MemberRecord {
    /// Its member ID, recorded once its own process has answered with it: it has data from then on.
    pub member_id: Option<MemberId>,
    /// etcd lists it as a voter.
    pub is_voter: bool,
    /// It was a started voter that served a linearizable read when it was last looked at.
    pub ready: bool,
    /// The version that its process last reported.
    pub version: Option<EtcdVersion>,
    /// The UID of the PVC that holds its data, recorded before its first Pod.
    pub pvc_uid: Option<Uid>,
    /// The UID of its present Pod. Of a member that keeps its data in memory: of the Pod that has the data, and
    /// never of another one.
    pub pod_uid: Option<Uid>,
}

/// A member's Pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodView {
    /// Its UID.
    pub uid: Uid,
    /// Its controller is our EtcdMember, by UID.
    pub ours: bool,
    /// When it was created, by the API server's clock.
    pub created: Time,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It ended for good (phase Failed or Succeeded) and will never run again.
    pub ended: bool,
    /// Its address, once it has one.
    pub ip: Option<IpAddr>,
    /// Its node, once it has one.
    pub node: Option<String>,
    /// Its zone, from its own label `topology.kubernetes.io/zone`, which API servers set since
    /// Kubernetes 1.35. None on older ones, and for a node without a zone.
    pub zone: Option<String>,
    /// The start-up probe has passed: etcd listens and its process is past its first boot.
    pub started: bool,
    /// It is Ready.
    pub ready: bool,
    /// It carries the label `role=voter`.
    pub voter_label: bool,
    /// Every other label that Services and watches rely on is as it should be.
    pub labels_right: bool,
    /// The join instruction in its annotations; none if they are missing or damaged.
    pub instruction: Option<JoinInstruction>,
    /// What keeps it from running.
    pub trouble: Option<PodTrouble>,
    /// The generation of the EtcdMember that it was made from; 0 if nobody has noted that.
    pub made_from: u64,
    /// How often its container was started again, by the kubelet's count.
    pub restarts: u32,
    /// It is the Pod of a recovery: its etcd runs once, with `--force-new-cluster`, and listens to nobody.
    pub rewrites: bool,
}

/// How etcd is told to start. It reads this at each start of its container, and ignores it when
/// its data directory holds a member already.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JoinInstruction {
    /// `--initial-cluster-state=new`: form a cluster of this member alone. Only ever for the seed,
    /// and only until the cluster ID is recorded.
    New {
        /// `--initial-cluster`.
        initial_cluster: String,
    },
    /// `--initial-cluster-state=existing`.
    Existing {
        /// `--initial-cluster`: etcd's own list for a joiner; for a member that has started once,
        /// itself alone, which is fatal over an emptied volume and ignored over data.
        initial_cluster: String,
    },
}

impl JoinInstruction {
    /// The value of `--initial-cluster`.
    pub fn initial_cluster(&self) -> &str {
        match self {
            JoinInstruction::New { initial_cluster } | JoinInstruction::Existing { initial_cluster } => {
                initial_cluster
            }
        }
    }

    /// The value of `--initial-cluster-state`.
    pub fn state(&self) -> &'static str {
        match self {
            JoinInstruction::New { .. } => "new",
            JoinInstruction::Existing { .. } => "existing",
        }
    }
}

/// What keeps a Pod from running, by what a person can do about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodTrouble {
    /// No node takes it; the scheduler's words.
    Unschedulable(String),
    /// Its image cannot be pulled; the kubelet's words.
    ImagePull(String),
    /// The kubelet cannot create its container or mount its volumes; its words.
    CannotStart(String),
    /// Its process was ended for using more memory than its limit.
    OutOfMemory,
    /// Its process keeps ending; etcd's last words.
    CrashLooping(String),
}

impl PodTrouble {
    /// Its reason.
    pub fn reason(&self) -> Reason {
        match self {
            PodTrouble::Unschedulable(_) => Reason::PodUnschedulable,
            PodTrouble::ImagePull(_) => Reason::ImagePullFailed,
            PodTrouble::CannotStart(_) => Reason::PodCannotStart,
            PodTrouble::OutOfMemory => Reason::PodOutOfMemory,
            PodTrouble::CrashLooping(_) => Reason::PodCrashLooping,
        }
    }

    /// The words of whoever reported it.
    pub fn words(&self) -> &str {
        match self {
            PodTrouble::Unschedulable(words)
            | PodTrouble::ImagePull(words)
            | PodTrouble::CannotStart(words)
            | PodTrouble::CrashLooping(words) => words,
            PodTrouble::OutOfMemory => "its process used more memory than its limit; raise spec.resources",
        }
    }
}

/// A member's PVC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PvcView {
    /// Its UID.
    pub uid: Uid,
    /// Its controller is our EtcdMember, by UID.
    pub ours: bool,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// Every label that the watch relies on is as it should be.
    pub labels_right: bool,
    /// Bytes that it asks for.
    pub requested: Option<u64>,
    /// Bytes that it has, once it is bound.
    pub capacity: Option<u64>,
    /// Since when its volume has grown and its file system waits for a node to grow it (`FileSystemResizePending`).
    pub resize_pending: Option<Time>,
}

/// A member with everything around it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberFacts {
    /// The EtcdMember.
    pub member: MemberView,
    /// Its Pod.
    pub pod: Presence<PodView>,
    /// Its PVC.
    pub pvc: Presence<PvcView>,
    /// The last look at its process.
    pub look: Look,
    /// It is a learner that has stood still for too long (see [`crate::progress`]).
    pub stalled: bool,
    /// The API server's words when it refused an object of this member, again and again, and last.
    pub refused: Option<String>,
    /// The API server's words when it refused to let its volume grow.
    pub cannot_grow: Option<String>,
    /// Pods of this member that we made and that ended without its process ever having answered.
    pub thrown_out: ThrownOut,
    /// Since when [`crate::lost_node::is_stranded`] has held without a break, as far as this process has seen: a restart of
    /// the operator starts anew, which is the safe side.
    pub stranded: Option<Time>,
}

/// Pods that were made for a member, one after the other, and whose process never answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ThrownOut {
    /// How many in a row, the present one included until its process answers.
    pub pods: u32,
    /// No other is made before this moment.
    pub until: Time,
}

/// The last linearizable member list, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListFact {
    /// None has been read since `since`, or the last attempts failed.
    Unknown {
        /// Since when.
        since: Time,
    },
    /// Read, and not contradicted since.
    Known {
        /// When the read that first showed exactly this list was *sent*, so that it is never newer
        /// than it says.
        at: Time,
        /// The list.
        list: MemberList,
    },
}

impl ListFact {
    /// The list, if there is one.
    pub fn list(&self) -> Option<&MemberList> {
        match self {
            ListFact::Known { list, .. } => Some(list),
            ListFact::Unknown { .. } => None,
        }
    }

    /// The line of the list for the member at `url`.
    pub fn at(&self, url: &PeerUrl) -> Option<&ListedMember> {
        self.list().and_then(|l| l.at(url))
    }
}

/// Everything a cluster decision looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSituation {
    /// The time.
    pub now: Time,
    /// The EtcdCluster.
    pub cluster: ClusterView,
    /// Its Services.
    pub services: BTreeMap<ServiceKind, ServiceState>,
    /// Its PodDisruptionBudget.
    pub budget: BudgetState,
    /// Every EtcdMember that has this cluster as its owner by UID, sorted by name.
    pub members: Vec<MemberFacts>,
    /// The last member list.
    pub list: ListFact,
    /// When the EtcdMembers were last read from the API server itself rather than from the store.
    pub members_confirmed: Option<Time>,
    /// The API server's words when it refused an object of the cluster itself, again and again, and last.
    pub refused: Option<String>,
    /// A fault of the operator itself, in words, while one is being lived with.
    pub fault: Option<String>,
    /// How long a member may be held by a node that is gone before it is replaced; none for ever.
    pub lost_node_after: Option<Duration>,
}

/// What a member knows of the cluster that owns it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The store is not filled yet, or the API server could not be asked.
    Unknown,
    /// A live GET found it gone or under another UID, or it is being deleted as a whole: its
    /// members are let go without touching etcd.
    Gone,
    /// It is there.
    Present {
        /// Its recorded cluster ID.
        cluster_id: Option<ClusterId>,
        /// The cluster ID's absence was read from the API server itself, not from a store.
        /// Nothing may be thrown away on the word of a store.
        confirmed: bool,
        /// Every effect is off: paused by a person, or something only a person can judge.
        hands_off: bool,
    },
}

/// Everything a member decision looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemberSituation {
    /// The time.
    pub now: Time,
    /// Its owner.
    pub owner: Owner,
    /// The member and what is around it.
    pub facts: MemberFacts,
    /// The last member list.
    pub list: ListFact,
    /// Whether it may leave, if its deletion was asked for (see [`crate::departure`]).
    pub departure: crate::departure::Departure,
    /// The guard has just granted the restart of its present Pod.
    pub granted: bool,
    /// The cluster is to be paused. `spec.dormant` on an EtcdMember counts only then: set by hand on the members of
    /// a cluster that is wanted, it would be an outage.
    pub parks: bool,
    /// What it does while its cluster is being recovered.
    pub recovery: Option<Role>,
    /// The guard answered, in this life of the actor and after the deletion was asked for, that
    /// etcd does not list this member and that nothing is in flight that could list it again.
    pub removed: bool,
    /// The disruption budget covers one more labelled voter (see [`crate::disruption::covers_label`]).
    pub budget_covers_label: bool,
}
