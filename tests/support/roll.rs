//! A rolling change as it is seen from outside: who was restarted, in which order, and how many served meanwhile.
//! Reads only.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::{EtcdMember, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::Scene;
use super::history::History;

/// Watches until it is dropped.
pub struct Roll {
    pods: History<Pod>,
    members: History<EtcdMember>,
    before: BTreeMap<String, Option<String>>,
}

/// Whether the Pod says that it is ready, and is to stay.
fn is_up(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

impl Roll {
    /// Starts to watch.
    pub async fn watch(scene: &Scene) -> Self {
        let pods = History::start(scene.api()).await;
        let members = History::start(scene.api()).await;
        let before = scene.pods().await.into_iter().map(|p| (p.name_any(), p.uid())).collect();
        Self { pods, members, before }
    }

    /// The members whose Pod was replaced so far, in the order in which the old ones began to leave.
    pub fn restarted(&self) -> Vec<String> {
        let mut order: Vec<String> = Vec::new();
        for seen in self.pods.all() {
            let name = seen.object.name_any();
            let old = self.before.get(&name).is_some_and(|uid| *uid == seen.object.uid());
            let leaves = seen.gone || seen.object.metadata.deletion_timestamp.is_some();
            if old && leaves && !order.contains(&name) {
                order.push(name);
            }
        }
        order
    }

    /// How many Pods were made since.
    pub fn made(&self) -> usize {
        self.pods.objects() - self.before.len()
    }

    /// The smallest number of Pods that were ready at the same time, from the first state that was seen on.
    pub fn fewest_up(&self) -> usize {
        let mut up: BTreeSet<String> = BTreeSet::new();
        let mut fewest = usize::MAX;
        let all = self.pods.all();
        for (at, seen) in all.iter().enumerate() {
            let name = seen.object.name_any();
            if !seen.gone && is_up(&seen.object) {
                up.insert(name);
            } else {
                up.remove(&name);
            }
            if at + 1 >= self.before.len() {
                fewest = fewest.min(up.len());
            }
        }
        fewest
    }

    /// Fails if two members ever had the leave to restart at the same time, or one still has it.
    pub fn one_permit_at_a_time(&self) {
        let mut holders: BTreeSet<String> = BTreeSet::new();
        for seen in self.members.all() {
            let name = seen.object.name_any();
            if !seen.gone && seen.object.annotations().contains_key(labels::PERMIT) {
                holders.insert(name);
            } else {
                holders.remove(&name);
            }
            assert!(holders.len() <= 1, "more than one may restart: {holders:?}");
        }
        assert!(holders.is_empty(), "the leave to restart was never given back: {holders:?}");
    }

    /// Checks a roll of every member that has ended: each was restarted once, the others served meanwhile, and who led
    /// when it began came last.
    pub fn check(&self, leader: &str) {
        let order = self.restarted();
        assert_eq!(order.len(), self.before.len(), "{order:?} of {:?}", self.before);
        assert_eq!(order.last().map(String::as_str), Some(leader), "{order:?}");
        assert_eq!(self.made(), self.before.len(), "each was restarted once");
        assert!(self.fewest_up() + 1 >= self.before.len(), "only {} were up", self.fewest_up());
        self.one_permit_at_a_time();
    }
}
