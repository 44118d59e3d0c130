//! Counts what was hit: decisions, verdicts, reasons, fates of calls, crash points. A kind that is
//! never hit makes the run fail, so that the properties cannot hold vacuously.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl Coverage {
    pub(crate) fn hit(&mut self, group: &'static str, what: &'static str) {
        *self.counts.entry((group, what)).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Coverage) {
        for (key, n) in &other.counts {
            *self.counts.entry(*key).or_default() += n;
        }
    }

    /// What of `expected` was never hit.
    pub(crate) fn missing(&self, expected: &[(&'static str, &'static str)]) -> Vec<String> {
        let never = |key: &&(&'static str, &'static str)| !self.counts.contains_key(*key);
        expected.iter().filter(never).map(|(group, what)| format!("{group}: {what}")).collect()
    }

    /// A table for a person.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let mut last = "";
        for ((group, what), n) in &self.counts {
            if *group != last {
                out.push_str(&format!("{group}\n"));
                last = group;
            }
            out.push_str(&format!("  {n:>10}  {what}\n"));
        }
        out
    }
}

/// What every full run must have hit: all that the decisions can say, every fate of a call, every
/// point at which the operator can die.
pub(crate) fn expected() -> Vec<(&'static str, &'static str)> {
    let all = |group: &'static str, names: &[&'static str]| -> Vec<_> {
        names.iter().map(|name| (group, *name)).collect()
    };
    let cluster = [
        "CreateService",
        "RepairService",
        "PutBudget",
        "DeleteBudget",
        "CreateMember seed",
        "CreateMember",
        "DeleteMember",
        "ParkMember",
        "WakeMember",
        "UpdateMember",
        "RollMember",
        "ConfirmMembers",
        "Wait",
        "HandsOff",
        "Settled",
    ];
    let member = [
        "CreatePvc",
        "Ask",
        "RecordJoin",
        "CreatePod",
        "CreateRecoveryPod",
        "PatchPod",
        "Record",
        "DeletePod",
        "EvictPod",
        "ClearPermit",
        "PatchPvc",
        "DeletePvc",
        "ConfirmOwner",
        "Release",
        "Settled",
    ];
    let waits = [
        "NotFormed",
        "MembershipInDoubt",
        "LearnerPresent",
        "MemberNotStarted",
        "VoterNotServing",
        "LearnerNotAnswering",
        "AwaitingLearnerSync",
        "AwaitingQuorum",
    ];
    let refusals = ["ForeignClusterID", "NotListed", "MemberIdMismatch", "LastVoter"];
    let deletes = [
        "ScalingDown",
        "LearnerStalled",
        "RemovedFromEtcd",
        "AnotherMemberFirst",
        "VolumeMissing",
        "VolumeReplaced",
        "VolumeTerminating",
        "MemoryLost",
        "DataDirectoryEmpty",
        "PodCrashLooping",
        "Recovering",
        "NodeLost",
    ];
    let holds = ["AnotherMemberFirst", "AwaitingQuorum", "NotKnownYet", "ReplacementFirst"];
    let etcd = ["UnhealthyCluster", "LearnerNotReady", "NotLearner", "PeerUrlExists"];
    // A restart takes a calm that comes when faults have stopped, and crashes with them. The failpoint tests end the
    // operator around an eviction on a real Kubernetes.
    let crashes: Vec<&'static str> =
        super::calls::ApiCall::NAMES.into_iter().filter(|name| *name != "EvictPod").collect();
    [
        all("cluster", &cluster),
        all("member", &member),
        all("verdict", &["Allow", "AlreadyDone", "Wait", "Refuse"]),
        all("call", &["Add", "Promote", "Remove", "MoveLeader", "Restart"]),
        all("judge waits", &waits),
        all("judge refuses", &refusals),
        all("cluster deletes", &deletes),
        all("departure holds", &holds),
        all("etcd refuses", &etcd),
        all("recovery", &["Fencing", "Rewriting", "Returning", "Recovered", "Cancelled", "refused"]),
        all("effect", &super::calls::ApiCall::NAMES),
        all("crash in a write", &crashes),
        all("crash", &["before a write", "after a write", "with a write in flight", "idle"]),
        all("crash in a call", &["not sent", "reply lost", "late", "dropped"]),
        all("fate", &["prompt", "reply lost", "late", "dropped", "not sent"]),
        all("confirm", &["outdated", "still stands"]),
    ]
    .concat()
}
