//! etcd's own view of a cluster, asked of its members at their Pods' addresses with etcdctl. Changes a membership
//! only where a test plays the stranger.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;

use super::{Scene, VERSION};

/// A member as etcd lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// 16 hex digits.
    pub id: String,
    pub name: String,
    pub peer_urls: Vec<String>,
    pub learner: bool,
}

/// A linearizable member list.
#[derive(Debug, Clone)]
pub struct List {
    /// 16 hex digits.
    pub cluster_id: String,
    pub members: Vec<Listed>,
}

impl List {
    /// How many voters and learners.
    pub fn counts(&self) -> (usize, usize) {
        let learners = self.members.iter().filter(|m| m.learner).count();
        (self.members.len() - learners, learners)
    }
}

/// What a member says of itself.
#[derive(Debug, Clone)]
pub struct Status {
    pub member_id: String,
    pub leader: String,
    pub learner: bool,
    pub revision: i64,
}

/// An ID as etcdctl's JSON has it, a number beyond what a double holds (MQ-03).
fn id(value: &Value) -> String {
    format!("{:016x}", value.as_u64().unwrap_or_default())
}

/// Client URLs of the cluster's Pods by Pod name; of voters only, or of all.
pub async fn endpoints(scene: &Scene, cluster: &str, voters: bool) -> BTreeMap<String, String> {
    let mut selector = format!("{}={cluster}", labels::CLUSTER);
    if voters {
        selector += &format!(",{}={}", labels::ROLE, labels::ROLE_VOTER);
    }
    let pods = scene.api::<Pod>().list(&ListParams::default().labels(&selector)).await.unwrap();
    pods.items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| {
            let address = pod.status.as_ref()?.pod_ip.clone()?;
            Some((pod.name_any(), format!("http://{address}:2379")))
        })
        .collect()
}

/// Runs etcdctl with JSON output.
pub async fn etcdctl(scene: &Scene, endpoint: &str, args: &[&str]) -> Result<Value, String> {
    let all: Vec<&str> =
        ["--command-timeout=4s", "--write-out=json"].into_iter().chain(args.iter().copied()).collect();
    let text = scene.testbed.etcdctl(VERSION, &[endpoint], &all).await.map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| format!("etcdctl {args:?} printed {text:?}: {e}"))
}

/// Runs etcdctl with JSON output against the voters, one after the other until one answers.
pub async fn ask(scene: &Scene, cluster: &str, args: &[&str]) -> Result<Value, String> {
    let mut said = "no Pod is labelled as voter".to_owned();
    for endpoint in endpoints(scene, cluster, true).await.values() {
        match etcdctl(scene, endpoint, args).await {
            Ok(value) => return Ok(value),
            Err(error) => said = error,
        }
    }
    Err(said)
}

/// The member list, read linearizably.
pub async fn list(scene: &Scene, cluster: &str) -> Result<List, String> {
    let value = ask(scene, cluster, &["member", "list"]).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let members = value["members"].as_array().into_iter().flatten().map(|m| Listed {
        id: id(&m["ID"]),
        name: text(&m["name"]),
        peer_urls: m["peerURLs"].as_array().into_iter().flatten().map(text).collect(),
        learner: m["isLearner"].as_bool().unwrap_or_default(),
    });
    Ok(List { cluster_id: id(&value["header"]["cluster_id"]), members: members.collect() })
}

/// What the member at this client URL says of itself.
pub async fn status(scene: &Scene, endpoint: &str) -> Result<Status, String> {
    let value = etcdctl(scene, endpoint, &["endpoint", "status"]).await?;
    let status = &value[0]["Status"];
    if status["header"]["member_id"].is_null() {
        return Err(format!("{endpoint} answered {value}"));
    }
    Ok(Status {
        member_id: id(&status["header"]["member_id"]),
        leader: id(&status["leader"]),
        learner: status["isLearner"].as_bool().unwrap_or_default(),
        revision: status["header"]["revision"].as_i64().unwrap_or_default(),
    })
}

/// The name of the Pod that leads, and its client URL.
pub async fn leader(scene: &Scene, cluster: &str) -> Result<(String, String), String> {
    for (pod, endpoint) in endpoints(scene, cluster, true).await {
        let status = status(scene, &endpoint).await?;
        if status.leader == status.member_id {
            return Ok((pod, endpoint));
        }
    }
    Err("no voter leads".to_owned())
}

/// Checks that every member holds the same data at the same revision.
pub async fn same_data_everywhere(scene: &Scene, cluster: &str) -> Result<(), String> {
    let all = endpoints(scene, cluster, true).await;
    let mut revision = 0;
    for endpoint in all.values() {
        revision = revision.max(status(scene, endpoint).await?.revision);
    }
    let mut hashes = BTreeSet::new();
    for endpoint in all.values() {
        let at = format!("--rev={revision}");
        let value = etcdctl(scene, endpoint, &["endpoint", "hashkv", &at]).await?;
        let hash = &value[0]["HashKV"];
        if hash["hash"].is_null() {
            return Err(format!("{endpoint} answered {value}"));
        }
        hashes.insert((hash["hash"].to_string(), hash["compact_revision"].to_string()));
    }
    if hashes.len() == 1 { Ok(()) } else { Err(format!("members differ at revision {revision}: {hashes:?}")) }
}
