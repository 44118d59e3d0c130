//! What a supervisor tells: the EtcdCluster's status, and the Events of what has changed in it. One write at a time, in a
//! slot of its own.

use std::time::Duration;

use etcd_operator_core::{
    cluster::is_about_to_show,
    reason::Reason,
    recovery,
    report::{Report, report},
    time::Time,
    view::ClusterSituation,
};
use ractor::ActorRef;

use super::SupervisorState;
use crate::{
    messages::SupervisorMsg,
    ports::{SeenCluster, Step},
};

/// For so long the status waits for a label that is on its way, to say both in one write. The label takes
/// a write and its echo, some 50 ms; if it does not come, the status goes without it.
pub(super) const ONE_WRITE: Duration = Duration::from_millis(500);

/// Why a part of the spec is not taken up.
const REFUSALS: [Reason; 3] = [Reason::VersionStepRefused, Reason::InvalidSpec, Reason::FieldNotSupportedYet];

impl SupervisorState {
    /// Whether the status is to be written now if it is another one: see [`ONE_WRITE`].
    pub(super) fn is_due(&mut self, s: &ClusterSituation, now: Time) -> bool {
        if !is_about_to_show(s) {
            self.waits_for_label = None;
            return true;
        }
        now.since(*self.waits_for_label.get_or_insert(now)) >= ONE_WRITE
    }

    pub(super) fn write_status(
        &mut self,
        myself: &ActorRef<SupervisorMsg>,
        seen: &SeenCluster,
        s: &ClusterSituation,
        now: Time,
    ) {
        if self.writing_status || s.cluster.deleting || self.status_pace.pause(now).is_some() {
            return;
        }
        // Until the store shows the EtcdCluster as the last write left it, any further one would be refused.
        if let Some((version, at)) = &self.status_on
            && *version == seen.own_version
            && now.since(*at) < Duration::from_secs(2)
        {
            return;
        }
        let said = report(s);
        self.context.metrics.reported(&self.key, &said);
        self.announce(s, &said);
        self.warn(&said);
        let Some(effect) = self.context.hands.write_status(&self.key, &said, now) else { return };
        self.beginning = s.cluster.recorded.target.is_none() && s.cluster.recorded.cluster_id.is_none();
        self.writing_status = true;
        self.status_on = Some((seen.own_version.clone(), now));
        self.spawn(myself, effect, SupervisorMsg::StatusWritten);
    }

    /// Tells a person what the spec asks for and may do harm, or cannot have: once, and again after it has changed.
    fn warn(&mut self, said: &Report) {
        let refused = Some(&said.progressing).filter(|c| {
            // Of a cluster that has not formed, its availability says the same.
            REFUSALS.contains(&c.reason) && said.available.reason != c.reason
        });
        let warnings: Vec<_> =
            said.spec_warnings.iter().chain(refused).map(|c| (c.reason, c.message.clone())).collect();
        for (reason, words) in warnings.iter().filter(|warning| !self.warned.contains(warning)) {
            tracing::warn!(%reason, words, "the spec needs a look");
            self.context.metrics.warned(*reason);
            self.context.hands.tell(&self.key, Step::ConditionChanged(*reason), None, words.clone());
        }
        self.warned = warnings;
    }

    /// Tells a person when the cluster has formed, and when its availability changes its reason.
    fn announce(&mut self, s: &ClusterSituation, said: &Report) {
        if s.cluster.recorded.cluster_id.is_none()
            && let Some(id) = said.record.cluster_id
        {
            self.context.hands.tell(
                &self.key,
                Step::ClusterFormed,
                None,
                format!("the cluster has formed with ID {id}"),
            );
        }
        if let Some((reason, words)) = recovery::step(s, &said.record) {
            tracing::warn!(%reason, words, "a recovery goes on");
            self.context.hands.tell(&self.key, Step::Recovery(reason), None, words);
        }
        let reason = said.available.reason;
        if self.said != Some(reason) && reason != Reason::NotKnownYet {
            // What was there when we came is no news.
            if self.said.is_some() || said.degraded.verdict == etcd_operator_core::report::Verdict::True {
                let step = Step::ConditionChanged(reason);
                self.context.hands.tell(&self.key, step, None, said.available.message.clone());
            }
            self.said = Some(reason);
        }
    }
}
