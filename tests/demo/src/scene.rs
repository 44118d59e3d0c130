//! One look at a cluster: its EtcdCluster, EtcdMembers, Pods and Events, and what each process says. Reads only.

use std::collections::BTreeMap;
use std::net::IpAddr;

use etcd_operator_api::{EtcdCluster, EtcdMember, conditions, labels};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinSet;

use crate::member::{Voice, ask};

/// The API server could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no Kubernetes: {0}. Is the testbed up, and KUBECONFIG set?")]
    Client(#[from] kube::Error),
}

/// What there is to see at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scene {
    pub(crate) name: String,
    /// Members wanted, and members that the status calls ready.
    pub(crate) replicas: i32,
    pub(crate) ready: i32,
    /// Available, with every wanted member ready and nothing left to do.
    pub(crate) settled: bool,
    /// `Available=True QuorumHealthy: all 3 voters serve`.
    pub(crate) conditions: Vec<String>,
    /// In the order of their creation.
    pub(crate) members: Vec<Row>,
    /// Notes of the operator's Events, oldest first.
    pub(crate) events: Vec<String>,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) pod: String,
    pub(crate) role: &'static str,
    pub(crate) ready: bool,
    /// Bytes; none while its process does not answer.
    pub(crate) db_size: Option<u64>,
}

/// Where to look.
pub(crate) struct Eyes {
    name: String,
    clusters: Api<EtcdCluster>,
    members: Api<EtcdMember>,
    pods: Api<Pod>,
    events: Api<Event>,
}

impl Eyes {
    /// Finds the API server.
    ///
    /// # Errors
    /// When nothing says where it is.
    pub(crate) async fn open(namespace: &str, name: &str) -> Result<Self, Error> {
        let client = Client::try_default().await?;
        Ok(Eyes {
            name: name.to_owned(),
            clusters: Api::namespaced(client.clone(), namespace),
            members: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client, namespace),
        })
    }

    /// Looks once.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn look(&self) -> Result<Scene, Error> {
        let ours = ListParams::default().labels(&labels::as_text(&labels::cluster_selector(&self.name)));
        let everything = ListParams::default();
        let (cluster, members, pods, events) = tokio::try_join!(
            self.clusters.get_opt(&self.name),
            self.members.list(&ours),
            self.pods.list(&ours),
            self.events.list(&everything),
        )?;
        let pods: BTreeMap<String, Pod> = pods.items.into_iter().map(|p| (p.name_any(), p)).collect();
        let mut members = members.items;
        members.sort_by_key(|m| (m.creation_timestamp().map(|t| t.0), m.name_any()));
        // All at once: one that does not answer must not hold up the picture of the others.
        let mut asking = JoinSet::new();
        for (name, pod) in &pods {
            if let Some(address) = address(pod) {
                let name = name.clone();
                asking.spawn(async move { (name, ask(address).await) });
            }
        }
        let voices: BTreeMap<String, Option<Voice>> = asking.join_all().await.into_iter().collect();
        let rows = members.iter().map(|member| {
            let name = member.name_any();
            row(member, pods.get(&name), voices.get(&name).copied().flatten())
        });
        let mut scene = Scene { name: self.name.clone(), members: rows.collect(), ..Scene::default() };
        if let Some(cluster) = cluster {
            scene.take_cluster(&cluster);
        }
        scene.events = steps(events.items, &self.name);
        Ok(scene)
    }
}

impl Scene {
    fn take_cluster(&mut self, cluster: &EtcdCluster) {
        let status = cluster.status.clone().unwrap_or_default();
        self.replicas = cluster.spec.replicas;
        self.ready = status.ready_members;
        let shown = [conditions::AVAILABLE, conditions::PROGRESSING, conditions::DEGRADED];
        let of_kind = |kind| conditions::find(&status.conditions, kind);
        self.conditions = shown
            .into_iter()
            .filter_map(of_kind)
            .map(|c| format!("{}={} {}: {}", c.type_, c.status, c.reason, c.message))
            .collect();
        self.settled = self.ready == self.replicas
            && conditions::is_true(&status.conditions, conditions::AVAILABLE)
            && of_kind(conditions::PROGRESSING).is_some_and(|c| c.status == "False");
    }
}

fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()
}

fn row(member: &EtcdMember, pod: Option<&Pod>, voice: Option<Voice>) -> Row {
    let recorded = member.status.as_ref();
    let served = recorded.is_some_and(|s| s.member_id.is_some());
    let accepted = !member.spec.initial_cluster.is_empty() || member.spec.bootstrap;
    Row {
        name: member.name_any(),
        node: pod.and_then(|p| p.spec.as_ref()).and_then(|s| s.node_name.clone()).unwrap_or_default(),
        pod: pod.map_or_else(|| "none yet".to_owned(), pod_state),
        role: role(voice, accepted, served),
        ready: recorded.is_some_and(|s| conditions::is_true(&s.conditions, conditions::READY)),
        db_size: voice.map(|v| v.db_size),
    }
}

/// Of the process if it answers, else how far it has come: whether etcd has accepted it, and whether it has
/// served before.
fn role(voice: Option<Voice>, accepted: bool, served: bool) -> &'static str {
    match voice {
        Some(Voice { learner: true, .. }) => "learner",
        Some(Voice { leader: true, .. }) => "leader",
        Some(_) => "voter",
        None if served => "no answer",
        None if accepted => "starting",
        None => "waiting",
    }
}

/// The phase, or what keeps the container from running.
fn pod_state(pod: &Pod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let status = pod.status.clone().unwrap_or_default();
    let waiting =
        status.container_statuses.unwrap_or_default().into_iter().find_map(|c| c.state?.waiting?.reason);
    waiting.or(status.phase).unwrap_or_default()
}

/// The notes of Events about this cluster, oldest first.
fn steps(events: Vec<Event>, cluster: &str) -> Vec<String> {
    let about = |event: &Event| {
        let object = event.regarding.as_ref();
        object.is_some_and(|o| o.kind.as_deref() == Some("EtcdCluster") && o.name.as_deref() == Some(cluster))
    };
    let mut events: Vec<Event> = events.into_iter().filter(about).collect();
    events.sort_by_key(|e| e.event_time.as_ref().map(|t| t.0));
    let words = |e: Event| format!("{}: {}", e.reason.unwrap_or_default(), e.note.unwrap_or_default());
    events.into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_answers_is_believed_before_the_record() {
        let voice = |learner, leader| Some(Voice { learner, leader, db_size: 0 });
        assert_eq!(role(voice(true, false), true, true), "learner");
        assert_eq!(role(voice(false, true), true, true), "leader");
        assert_eq!(role(voice(false, false), true, true), "voter");
        assert_eq!(role(None, true, true), "no answer");
        assert_eq!(role(None, true, false), "starting");
        assert_eq!(role(None, false, false), "waiting");
    }
}
