//! Owns the reasons for waiting, refusing and reporting that decisions give. Decides nothing.
//!
//! Each has the same name in a status, an event, a log line and a metric; the adapter maps them one
//! to one to the API's enum and a test there proves that none is missing.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why something is as it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The name, as people and machines read it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name),)* }
            }

            /// The reason of this name.
            pub fn named(text: &str) -> Option<Reason> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }
    };
}

reasons! {
    /// Every wanted voter serves.
    QuorumHealthy,
    /// A quorum serves, but not every wanted voter.
    QuorumAvailable,
    /// Voters answer, but none is connected to a quorum.
    QuorumLost,
    /// No member answers.
    ClusterUnreachable,
    /// The seed has not formed the cluster yet.
    WaitingForSeed,
    /// The seed did not form the cluster before the deadline.
    BootstrapFailed,
    /// The target was not reached before the deadline. The efforts go on.
    DeadlineExceeded,
    /// The first sight of this spec.
    InitialSnapshot,
    /// The spec changed and is being worked towards.
    SpecChanged,
    /// Everything is as the spec says.
    Reconciled,
    /// No Pod is wanted while the data stays.
    Paused,
    /// A person paused the operator for this cluster, or only a person can judge what to do.
    ReconcilePaused,
    /// Voters can be evicted as long as a quorum is left.
    BudgetLeavesQuorum,
    /// Every voter is needed for the quorum, so none is evicted.
    BudgetBlocksDrain,
    /// Some voter does not serve.
    MembersUnhealthy,
    /// The spec uses what this build does not do yet.
    FieldNotSupportedYet,
    /// The spec asks for what can never work.
    InvalidSpec,
    /// Data in memory can outgrow the memory limit.
    MemoryLimitTooSmall,
    /// An object that bears our name belongs to somebody else.
    ForeignObject,
    /// A member answers with the ID of another cluster.
    ForeignClusterID,
    /// etcd lists a member that no EtcdMember accounts for.
    UnexplainedMember,
    /// A member's recorded volume is gone.
    VolumeMissing,
    /// A member's volume is another one than the recorded.
    VolumeReplaced,
    /// A member's volume was deleted, and stays only until the member's Pod ends.
    VolumeTerminating,
    /// Members are being restarted one by one, so that a changed spec reaches them.
    RollingUpdate,
    /// A member runs another version than the spec asks for.
    VersionDiffers,
    /// A volume has grown, and its file system waits for another Pod.
    VolumeGrows,
    /// A volume cannot grow, or not yet.
    VolumeCannotGrow,
    /// The spec asks for a version that etcd cannot reach from the present one.
    VersionStepRefused,
    /// A member kept its data in its Pod's memory, and the Pod is gone.
    MemoryLost,
    /// A member's data directory is empty, though the member has had data.
    DataDirectoryEmpty,
    /// A member's data cannot be read by etcd.
    DataDamaged,
    /// The node that a member needs has been gone for longer than a person has set.
    NodeLost,
    /// etcd has found that its members' data differ.
    CorruptAlarm,
    /// A member's database has reached its quota, so etcd takes no more writes.
    NoSpaceAlarm,
    /// The cluster is brought back from one member that a person named.
    Recovering,
    /// The cluster was brought back from one member.
    Recovered,
    /// A recovery was taken back before anything was changed.
    RecoveryCancelled,
    /// The recovery that a person asked for is not carried out.
    RecoveryRefused,
    /// The API server refused an object that a member or the cluster needs.
    ObjectRefused,
    /// Every voter's EtcdMember is to be deleted, while the cluster is wanted.
    LastMemberKept,
    /// All EtcdMembers of a formed cluster are gone.
    AllMembersLost,
    /// No node takes a member's Pod.
    PodUnschedulable,
    /// A member's image cannot be pulled.
    ImagePullFailed,
    /// A member's container cannot be created.
    PodCannotStart,
    /// A member's process keeps ending.
    PodCrashLooping,
    /// A member's process was ended for its memory use.
    PodOutOfMemory,
    /// A member's Pod has ended for good.
    PodEnded,
    /// A part of the operator keeps failing on this cluster.
    OperatorFault,
    /// Something has not been looked at yet.
    NotKnownYet,
    /// An earlier membership call may still be applied.
    MembershipInDoubt,
    /// The cluster has not formed, so it has no membership to change.
    NotFormed,
    /// Another member is a learner.
    LearnerPresent,
    /// A member was added and has not started.
    MemberNotStarted,
    /// The learner does not answer, or not steadily.
    LearnerNotAnswering,
    /// The learner is behind the leader.
    AwaitingLearnerSync,
    /// A quorum of what would remain does not serve.
    AwaitingQuorum,
    /// A voter other than the one concerned does not serve.
    VoterNotServing,
    /// The change would leave no voter.
    LastVoter,
    /// The member ID on record is not the one that etcd lists at this peer URL.
    MemberIdMismatch,
    /// etcd does not list the member.
    NotListed,
    /// etcd says that its voters have not been connected for long enough.
    UnhealthyCluster,
    /// Another member goes first.
    AnotherMemberFirst,
    /// The replacement must be a voter first.
    ReplacementFirst,
    /// A learner stood still for too long.
    LearnerStalled,
    /// etcd does not list the member any more, so it can never come back.
    RemovedFromEtcd,
    /// There are more members than wanted.
    ScalingDown,
    /// There are fewer members than wanted.
    ScalingUp,
    /// A member is on its way to being a voter.
    MemberJoining,
    /// A member is on its way out.
    MemberLeaving,
    /// A Pod is on its way out.
    PodTerminating,
    /// Something is being created or recorded.
    InProgress,
    /// This process does not own the cluster's shard for long enough to make the call.
    NotOwner,
    /// The EtcdCluster is gone.
    ClusterGone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
