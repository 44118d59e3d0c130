//! The one list of reasons. Conditions, Events, logs and metrics all use it, so that a word seen in one place
//! can be looked up in the others. No I/O.
//!
//! A reason's name is part of the API: people alert on it. Add, never rename.

use std::fmt;
use std::str::FromStr;

macro_rules! reasons {
    ($( $(#[doc = $doc:literal])+ $weight:ident $name:ident, )+) => {
        /// Why something is as it is, or what was just done. The documentation of each says what it means
        /// and what a person does next.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Reason { $( $(#[doc = $doc])+ $name, )+ }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )+ ];

            /// As it stands in a condition, an Event, a log line and a metric label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )+ }
            }

            /// Whether an Event with this reason is a warning: something that a person may have to look at.
            #[must_use]
            pub const fn is_warning(self) -> bool {
                matches!(Weight::of(self), Weight::Warning)
            }

            /// What it means and what a person does next, for documentation and tools.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $( Self::$name => concat!($( $doc ),+).trim_ascii_start(), )+ }
            }
        }

        enum Weight { Normal, Warning }

        impl Weight {
            const fn of(reason: Reason) -> Self {
                match reason { $( Reason::$name => Self::$weight, )+ }
            }
        }
    };
}

reasons! {
    // Available, Progressing, Degraded: the names that the Go operator uses.

    /// Every voter answers and etcd agrees on a leader. Nothing to do.
    Normal QuorumHealthy,
    /// A quorum answers, but not every member does. Reads and writes work; look at Degraded for the member.
    Normal QuorumAvailable,
    /// The cluster was found running and was recognised by its cluster ID. Nothing to do.
    Normal ClusterDiscovered,
    /// replicas is 0: the data stays, no Pod runs. Set replicas to resume.
    Normal Paused,
    /// Fewer voters answer than a quorum needs, so etcd takes no writes. Bring Pods and nodes of the missing members
    /// back; the operator removes nobody and starts no new cluster.
    Warning QuorumLost,
    /// No member could be asked. Nothing is known about the cluster; check Pods, network and TLS.
    Warning ClusterUnreachable,
    /// The cluster never formed. The message says what stopped its first member; correct the spec.
    Warning BootstrapFailed,
    /// The change took longer than progressDeadlineSeconds. The operator keeps trying; the message names what it
    /// waits for.
    Warning DeadlineExceeded,
    /// The spec asks for certificates from cert-manager, which is not installed. Install it or use Secrets.
    Warning CertManagerNotInstalled,
    /// etcd asks for a user, but the spec does not configure auth. Configure it as the cluster was made.
    Warning AuthRequiredNotConfigured,
    /// The operator has taken up the spec for the first time. Nothing to do.
    Normal InitialSnapshot,
    /// The spec changed and is being worked towards. Nothing to do.
    Normal SpecChanged,
    /// The first member is not serving yet. If it lasts, look at its Pod.
    Normal WaitingForSeed,
    /// The deadline passed, and the spec is being tried again. Look at what the message names.
    Normal RetryAfterDeadline,
    /// The cluster is what the spec says. Nothing to do.
    Normal Reconciled,
    /// At least one member does not serve. The message names it; look at its EtcdMember and Pod.
    Warning MembersUnhealthy,
    /// Every member serves. Nothing to do.
    Normal MembersHealthy,
    /// Pods of voters can be evicted as long as a quorum is left. Nothing to do.
    Normal BudgetLeavesQuorum,
    /// Each voter of one or two is needed for the quorum, so a drain of its node waits. Set replicas to 3, or delete the
    /// Pod at the price of an outage.
    Normal BudgetBlocksDrain,

    // What the spec asks for and cannot have.

    /// The spec uses a field that this build does not act on. Nothing was created; remove the field or use a
    /// build that has it.
    Warning FieldNotSupportedYet,
    /// This build does not act on this kind. Nothing was done; use a build that does.
    Warning KindNotSupportedYet,
    /// The spec contradicts itself or names something impossible. Nothing was changed; the message says what to
    /// correct.
    Warning InvalidSpec,
    /// Data in memory counts against resources.limits.memory, which is smaller than storage.size, so etcd may be killed
    /// again and again. Raise the limit above the size.
    Warning MemoryLimitTooSmall,
    /// The EtcdCluster that is referred to does not exist in this namespace. Correct the name.
    Warning ClusterNotFound,

    // Recovery from lost quorum.

    /// The cluster is being brought back from the member that the annotation recover-from names. The message says how
    /// far it is and what it waits for.
    Warning Recovering,
    /// The cluster goes on with the data of one member, and grows from it. What only the lost members held is gone.
    Warning Recovered,
    /// The recovery was taken back before anything was changed, because the annotation was taken off or the quorum
    /// returned. Nothing to do.
    Normal RecoveryCancelled,
    /// The recovery that recover-from asks for is not carried out; the message says why. Change the annotation or take
    /// it off.
    Warning RecoveryRefused,

    // What stops every change until a person decides.

    /// An object with a name that the cluster needs exists and is not the operator's. It is never adopted; delete or
    /// rename it.
    Warning ForeignObject,
    /// A member answers with another cluster ID than the recorded one. Every change has stopped. Find out which
    /// cluster runs there before anything else.
    Warning ForeignClusterID,
    /// etcd lists a member that no EtcdMember explains, and the operator did not add. Every change has stopped. Remove
    /// it with etcdctl if it is not wanted.
    Warning UnexplainedMember,
    /// The EtcdMembers of all voters were deleted while the cluster is wanted. Each stays until a replacement votes, so the
    /// last volume is kept. Delete the EtcdCluster if the cluster is to go; otherwise nothing to do.
    Warning LastMemberKept,
    /// A formed cluster has no EtcdMember left. No new cluster is begun under its name. Restore the EtcdMembers, or delete
    /// the EtcdCluster and begin anew from a snapshot.
    Warning AllMembersLost,
    /// The annotation reconcile-paused is set, so the operator changes nothing. Remove it to go on.
    Normal ReconcilePaused,

    // A member's volume and Pod.

    /// The member's claim is gone, and its data with it. The member is replaced when the others hold a quorum; without
    /// one, restore a snapshot into a new EtcdCluster.
    Warning VolumeMissing,
    /// The member's claim is another one than recorded. Its Pod is not started on it; the member is replaced when the
    /// others hold a quorum.
    Warning VolumeReplaced,
    /// The member's claim was deleted; it stays, with the data, only until the Pod ends. The member is replaced while it
    /// still serves; leave its Pod alone until then.
    Warning VolumeTerminating,
    /// The changed spec reaches the members one by one: each is restarted when all the others serve. If it lasts, look at
    /// the member that the message names.
    Normal RollingUpdate,
    /// A volume has grown, and its file system waits for the next Pod. The member is restarted when its turn comes.
    Normal VolumeGrows,
    /// A volume cannot grow: its StorageClass or its driver does not allow it. Use a class that allows expansion; new
    /// members get the new size, so deleting EtcdMembers one by one helps as well.
    Warning VolumeCannotGrow,
    /// etcd cannot get from the version that runs to the one that the spec asks for. The cluster goes on as it is; the
    /// message names the version to set first.
    Warning VersionStepRefused,
    /// The member kept its data in its Pod's memory, and the Pod is gone. The member is replaced when the others hold a
    /// quorum; without one the data is lost, restore a snapshot into a new EtcdCluster.
    Warning MemoryLost,
    /// The member's data directory is empty, though it has had data. It never votes again; it is replaced when the others
    /// hold a quorum. Find out who emptied the volume.
    Warning DataDirectoryEmpty,
    /// etcd cannot read the member's data. The member is replaced when the others hold a quorum; check the disk.
    Warning DataDamaged,
    /// The node that the member needs has been gone for longer than --replace-lost-node-after. The member is replaced when
    /// the others hold a quorum; delete the Node object if the node never comes back, so that its Pod can go.
    Warning NodeLost,
    /// etcd has raised the alarm CORRUPT: members hold different data. The set of members is left as it is. Compare
    /// `etcdctl endpoint hashkv --cluster`, delete the EtcdMember that differs, then disarm the alarm.
    Warning CorruptAlarm,
    /// etcd has raised the alarm NOSPACE: a database is at its quota and no write is taken. Compact and defragment, or
    /// raise options.quotaBackendBytes, then disarm the alarm.
    Warning NoSpaceAlarm,
    /// The member's claim is not bound. Check the StorageClass and the provisioner.
    Warning VolumePending,
    /// No node takes the Pod. The message is the scheduler's; make room or relax the constraints.
    Warning PodUnschedulable,
    /// The image cannot be pulled. Correct the version, the image repository or the pull secrets.
    Warning ImagePullFailed,
    /// etcd keeps ending. The message holds its last words.
    Warning PodCrashLooping,
    /// etcd was killed for memory. Raise resources.limits.memory.
    Warning PodOutOfMemory,
    /// The Pod has not started yet. Wait; if it lasts, describe the Pod.
    Normal PodStarting,
    /// The container cannot be created. The message holds the kubelet's words; a missing Secret or volume is the usual
    /// cause.
    Warning PodCannotStart,
    /// The Pod has ended for good, such as by eviction. It is made anew.
    Warning PodEnded,
    /// The Pod is on its way out. If it lasts, its node may be gone.
    Normal PodTerminating,
    /// The API server refused an object that the operator made. The message holds its words; a policy, a quota or a
    /// webhook is the usual cause.
    Warning ObjectRefused,

    // Where a member is on its way.

    /// Another member goes first: members change one at a time. Nothing to do.
    Normal AnotherMemberFirst,
    /// Another member is a learner, and there is one at a time. Nothing to do.
    Normal LearnerPresent,
    /// A member was added to etcd and its process has not been seen. If it lasts, look at its Pod.
    Warning MemberNotStarted,
    /// The replacement becomes a voter before the old member leaves. Nothing to do.
    Normal ReplacementFirst,
    /// The learner is copying data from the leader. Nothing to do; large databases take minutes.
    Normal AwaitingLearnerSync,
    /// The learner does not answer, or not steadily, so it is not promoted. If it lasts, look at its Pod.
    Warning LearnerNotAnswering,
    /// The learner stood still for too long. It is removed and a new one follows; check disk and network of its node.
    Warning LearnerStalled,
    /// A change waits until enough voters answer. Look at the members that do not.
    Warning AwaitingQuorum,
    /// A voter other than the one concerned does not serve, so the change waits. Look at that voter's Pod.
    Warning VoterNotServing,
    /// The change would leave no voter, so it is refused. Delete the EtcdCluster if the cluster is to go.
    Warning LastVoter,
    /// etcd says "unhealthy cluster": its voters must have been connected for 5 seconds. The operator asks again; nothing to
    /// do unless it lasts.
    Normal UnhealthyCluster,
    /// The cluster has not formed, so it has no membership to change. Nothing to do.
    Normal NotFormed,
    /// Something has not been looked at yet. Nothing to do.
    Normal NotKnownYet,
    /// Something is being created or recorded. Nothing to do.
    Normal InProgress,
    /// A member is on its way to being a voter. Nothing to do.
    Normal MemberJoining,
    /// It is not known whether the last membership change took effect, so no other is made. Resolved by itself once
    /// etcd can be asked.
    Warning MembershipInDoubt,
    /// etcd has the member in its list, and its process has been seen. Nothing to do.
    Normal MemberJoined,
    /// etcd has not accepted the member yet. Nothing to do.
    Normal NotJoined,
    /// The member is a started voter that answers linearizable reads. Nothing to do.
    Normal MemberServing,
    /// The member does not answer. Look at its Pod.
    Warning MemberNotServing,
    /// The member is a learner, which does not count for the quorum yet. Nothing to do.
    Normal MemberIsLearner,
    /// The member is on its way out of the cluster. Nothing to do.
    Normal MemberLeaving,
    /// etcd does not list this member any more, so it can never come back. It is replaced.
    Warning RemovedFromEtcd,
    /// etcd does not list this member yet. It joins when its turn comes.
    Normal NotListed,
    /// The recorded member ID is not the one that etcd lists at this peer URL. Every change to this member has stopped.
    /// Compare `etcdctl member list` with the EtcdMembers.
    Warning MemberIdMismatch,
    /// The member is paused. Set replicas to resume.
    Normal Dormant,
    /// etcd reports the version that the spec asks for. Nothing to do.
    Normal VersionMatches,
    /// etcd reports another version than the spec asks for. It follows with the next roll.
    Normal VersionDiffers,

    // The operator itself.

    /// An actor of the operator failed and is started again, with growing pauses. Report the message as a bug.
    Warning OperatorFault,
    /// Another operator works on these clusters, so this one does nothing. Stop one of the two.
    Warning AnotherOperatorRunning,
    /// The Lease for this cluster was lost, so every effect has stopped. Another replica takes over.
    Warning NotOwner,
    /// The object cannot be read as this version of the API. Only this object is left alone; correct it.
    Warning UnreadableObject,

    // Steps, as Events.

    /// The first member was created.
    Normal SeedCreated,
    /// The first member serves, and the cluster ID is recorded.
    Normal ClusterFormed,
    /// An EtcdMember was created.
    Normal MemberCreated,
    /// etcd accepted a new member as a learner.
    Normal LearnerAdded,
    /// A learner became a voter.
    Normal MemberPromoted,
    /// A member was removed from etcd.
    Normal MemberRemoved,
    /// A paused member is to run again.
    Normal MemberWoken,
    /// A member is replaced by a new one.
    Normal MemberReplaced,
    /// A member's Pod was created.
    Normal PodCreated,
    /// A member's Pod was deleted.
    Normal PodDeleted,
    /// A member's Pod was deleted to be made anew.
    Normal PodReplaced,
    /// A member's claim was created.
    Normal VolumeCreated,
    /// A member's claim was deleted, after etcd no longer lists the member.
    Normal VolumeDeleted,
    /// Leadership was handed to another member.
    Normal LeaderMoved,
    /// The cluster is growing towards replicas.
    Normal ScalingUp,
    /// The cluster is shrinking towards replicas.
    Normal ScalingDown,
    /// A Service, label or budget that had been changed by hand was put back.
    Normal DriftRepaired,
    /// A running cluster of the Go operator was taken over.
    Normal ClusterAdopted,
    /// The EtcdCluster is gone; its members are let go without touching etcd.
    Normal ClusterGone,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is not one of the [`Reason`]s.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a reason that this build knows")]
pub struct UnknownReason(String);

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|r| r.as_str() == text).ok_or_else(|| UnknownReason(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_is_one_camel_case_word_that_reads_back() {
        let mut seen = BTreeSet::new();
        for &reason in Reason::ALL {
            let text = reason.as_str();
            assert!(text.starts_with(|c: char| c.is_ascii_uppercase()), "{text}");
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric()), "{text}");
            assert!(text.len() <= 128, "{text}: Events take 128 characters");
            assert!(seen.insert(text), "{text} is there twice");
            assert_eq!(text.parse(), Ok(reason));
            assert_eq!(reason.to_string(), text);
        }
        assert!("Sunshine".parse::<Reason>().is_err());
    }

    #[test]
    fn every_warning_tells_a_person_more_than_its_name() {
        for &reason in Reason::ALL.iter().filter(|r| r.is_warning()) {
            assert!(reason.help().matches(['.', ';', ',']).count() >= 2, "{reason}: {}", reason.help());
        }
    }

    #[test]
    fn the_reasons_of_the_go_operator_are_all_there() {
        for text in "QuorumHealthy QuorumAvailable ClusterDiscovered Paused QuorumLost ClusterUnreachable \
                     BootstrapFailed DeadlineExceeded CertManagerNotInstalled AuthRequiredNotConfigured \
                     InitialSnapshot SpecChanged WaitingForSeed RetryAfterDeadline Reconciled MembersUnhealthy"
            .split_whitespace()
        {
            assert!(text.parse::<Reason>().is_ok(), "{text}");
        }
    }
}
