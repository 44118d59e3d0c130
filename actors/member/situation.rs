//! What a member actor's next decision looks at: what the stores show, what the board knows of etcd, and what only this
//! actor remembers. No I/O.

use etcd_operator_core::{
    cluster::{ClusterDecision, hands_off, may_leave},
    departure::Departure,
    disruption::covers_label,
    pause::parks,
    reason::Reason,
    recovery::role,
    time::Time,
    view::{MemberFacts, MemberSituation, Owner, Presence},
};

use super::{GRANT, MemberState};
use crate::ports::SeenCluster;

impl MemberState {
    /// Everything that its next decision looks at.
    pub(super) fn situation(&self, seen: &SeenCluster, facts: &MemberFacts, now: Time) -> MemberSituation {
        let whole = self.args.board.situation(seen, now);
        let owner = match (&seen.cluster, &whole) {
            _ if self.args.board.is_gone() => Owner::Gone,
            (Presence::Present(cluster), _) if cluster.deleting => Owner::Gone,
            (Presence::Present(cluster), Some(whole)) => Owner::Present {
                cluster_id: cluster.recorded.cluster_id,
                confirmed: self.owner_confirmed,
                hands_off: matches!(hands_off(whole), Some(ClusterDecision::HandsOff { .. })),
            },
            _ => Owner::Unknown,
        };
        let covers = whole.as_ref().is_some_and(|whole| covers_label(whole, &facts.member.name));
        let parks = whole.as_ref().is_some_and(parks);
        let recovery = whole.as_ref().and_then(|whole| role(whole, &facts.member.name));
        let departure =
            whole.map_or(Departure::Hold(Reason::NotKnownYet), |whole| may_leave(&whole, &facts.member.name));
        MemberSituation {
            now,
            owner,
            facts: facts.clone(),
            list: self.args.board.list(),
            departure,
            removed: self.removed && facts.member.deleting.is_some(),
            parks,
            recovery,
            granted: self.granted.as_ref().is_some_and(|(pod_uid, at)| {
                now.since(*at) < GRANT && facts.pod.present().is_some_and(|p| p.uid == *pod_uid)
            }),
            budget_covers_label: covers,
        }
    }
}
