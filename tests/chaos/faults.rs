//! Faults, done to whoever fits when it is time.

use std::time::Duration;

use etcd_operator_api::{EtcdMember, labels, names};
use etcd_operator_testbed::control::{Order, order};
use etcd_operator_testbed::{Node, Partition};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::blows::{Blow, Fault, Lasting, Trouble, Who};
use crate::drain::{Answer, Drain, evict};
use crate::figures::say;
use crate::losses;
use crate::operators::Asleep;
use crate::plan::CLUSTERS;
use crate::support::frozen::{self, Frozen};
use crate::support::{Scene, etcd};
use crate::world::World;

/// How often a node is started, if it does not stay up.
const NODE_STARTS: usize = 20;
/// After this long a node that was started counts as back.
pub(crate) const NODE_STAYS: Duration = Duration::from_secs(5);

/// Something that has begun and is to be ended.
pub(crate) struct Begun {
    /// Not before this.
    pub(crate) until: Instant,
    what: String,
    undo: Undo,
}

enum Undo {
    Partition(Partition),
    Frozen(Frozen),
    Node(Node),
    Drain(Drain),
    Pause(usize),
    Operator { asleep: Box<Asleep>, then: Duration },
    Link,
}

/// What became of a fault.
pub(crate) enum Outcome {
    /// There was nobody whom it could have hit.
    Nothing,
    /// It happened.
    Done,
    /// It has begun.
    Begun(Begun),
}

/// Lets a fault happen.
///
/// # Errors
/// It could not be done, or the operator did not bear it as it should.
pub(crate) async fn begin(world: &mut World, fault: &Fault) -> Result<Outcome, String> {
    match fault {
        Fault::Blow(cluster, blow) => {
            let name = CLUSTERS[*cluster];
            strike(&world.scene, name, *blow).await
        }
        Fault::Lasting(lasting, time) => last(world, *lasting, *time).await,
        Fault::Trouble(trouble) => operator(world, trouble).await,
    }
}

impl Begun {
    /// Ends it.
    ///
    /// # Errors
    /// It could not be ended, or the operator did not bear it as it should.
    pub(crate) async fn end(self, world: &mut World) -> Result<(), String> {
        let text = |e: etcd_operator_testbed::Error| e.to_string();
        match self.undo {
            Undo::Partition(partition) => partition.heal().map_err(text)?,
            Undo::Frozen(frozen) => drop(frozen),
            Undo::Node(node) => bring_back(world, &node).await?,
            Undo::Drain(drain) => say(&drain.end().await?),
            Undo::Pause(cluster) => {
                let replicas = world.wanted[cluster].replicas;
                say(&format!("{} scaled to {replicas}", CLUSTERS[cluster]));
                world.scene.scale(CLUSTERS[cluster], replicas).await;
            }
            Undo::Link => world.operators.cut(false),
            Undo::Operator { asleep, then } => {
                world.operators.take_over(&world.scene).await?;
                say("the second operator has taken over");
                world.pass(then).await?;
                asleep.wake().await?;
            }
        }
        say(&format!("over: {}", self.what));
        Ok(())
    }
}

/// Starts a node until it stays up: its programs end at once while the machine has no inotify instance left for them,
/// of which several testbeds need more than the 128 that are usual.
async fn bring_back(world: &mut World, node: &Node) -> Result<(), String> {
    let text = |e: etcd_operator_testbed::Error| e.to_string();
    let kubelet = format!("kubelet{}", node.name().trim_start_matches("node"));
    for attempt in 1..=NODE_STARTS {
        node.start().await.map_err(text)?;
        world.pass(NODE_STAYS).await?;
        let components = order(&Order::Status).await.map_err(text)?.components;
        let state = components.into_iter().find(|(name, _)| *name == kubelet).map(|(_, state)| state);
        if state.as_deref() == Some("running") {
            return Ok(());
        }
        say(&format!("start {attempt} of {}: {kubelet} {}", node.name(), state.unwrap_or_default()));
        // A runtime that came up without its plugins stays that way.
        node.kill().await.map_err(text)?;
    }
    Err(format!("{} does not come up; its logs are in {}", node.name(), world.scene.testbed.logs().display()))
}

async fn operator(world: &mut World, trouble: &Trouble) -> Result<Outcome, String> {
    let World { scene, operators, .. } = world;
    match trouble {
        Trouble::Killed { same } => {
            say(if *same { "operator killed" } else { "operator killed; another Pod takes its place" });
            operators.kill(*same, scene).await?;
        }
        Trouble::Failpoints(points) => {
            say(&format!("operator started again, to end at {}", points.join(", then ")));
            operators.arm(points).await?;
        }
        Trouble::HandsOver => {
            say("operator asked to end while another one waits");
            operators.hand_over(scene).await?;
        }
        Trouble::Frozen(then) => {
            let what = "operator frozen while another one waits".to_owned();
            say(&what);
            let asleep = Box::new(operators.freeze(scene).await);
            let undo = Undo::Operator { asleep, then: *then };
            return Ok(Outcome::Begun(Begun { until: Instant::now(), what, undo }));
        }
    }
    Ok(Outcome::Done)
}

async fn last(world: &mut World, lasting: Lasting, time: Duration) -> Result<Outcome, String> {
    let text = |e: etcd_operator_testbed::Error| e.to_string();
    let scene = &world.scene;
    let (what, undo) = match lasting {
        Lasting::CutOff(cluster, who) => {
            let Some((pod, role)) = choose(scene, CLUSTERS[cluster], who).await else {
                return Ok(Outcome::Nothing);
            };
            let Some(address) = pod.status.as_ref().and_then(|s| s.pod_ip.as_deref()) else {
                return Ok(Outcome::Nothing);
            };
            let undo = Undo::Partition(Partition::of(address).map_err(text)?);
            (format!("{role}{} cut off from its peers", named(&pod)), undo)
        }
        Lasting::StandsStill(cluster, who) => {
            let Some((pod, role)) = choose(scene, CLUSTERS[cluster], who).await else {
                return Ok(Outcome::Nothing);
            };
            let member = [pod.name_any()];
            if frozen::of(&member).len() != 1 {
                return Ok(Outcome::Nothing);
            }
            (format!("{role}{} stands still", named(&pod)), Undo::Frozen(Frozen::all(&member)))
        }
        Lasting::NodeLost(number) => {
            let node = nth(scene.testbed.nodes(), number);
            node.kill().await.map_err(text)?;
            (format!("{} lost", node.name()), Undo::Node(node))
        }
        Lasting::KubeletLost(number) => {
            let node = nth(scene.testbed.nodes(), number);
            node.kill_kubelet().await.map_err(text)?;
            (format!("kubelet of {} lost", node.name()), Undo::Node(node))
        }
        Lasting::Drained(number) => {
            let node = nth(scene.testbed.nodes(), number).name();
            let undo = Undo::Drain(Drain::begin(scene, node.clone()).await?);
            (format!("{node} drained"), undo)
        }
        Lasting::Paused(cluster) => {
            scene.scale(CLUSTERS[cluster], 0).await;
            (format!("{} paused", CLUSTERS[cluster]), Undo::Pause(cluster))
        }
        Lasting::OperatorCutOff => {
            world.operators.cut(true);
            ("operator cut off from the API server".to_owned(), Undo::Link)
        }
    };
    say(&format!("{what}, for {:.1} s", time.as_secs_f32()));
    Ok(Outcome::Begun(Begun { until: Instant::now() + time, what, undo }))
}

async fn strike(scene: &Scene, cluster: &str, blow: Blow) -> Result<Outcome, String> {
    match blow {
        Blow::Scaled(to) => {
            say(&format!("{cluster} scaled to {to}"));
            scene.scale(cluster, to).await;
        }
        Blow::MindChanged(first, after, then) => {
            say(&format!("{cluster} scaled to {first}, and after {} ms to {then}", after.as_millis()));
            scene.scale(cluster, first).await;
            tokio::time::sleep(after).await;
            scene.scale(cluster, then).await;
        }
        Blow::MemberDeleted(who) => {
            let Some((pod, role)) = choose(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
            say(&format!("EtcdMember of {role}{} deleted", named(&pod)));
            delete::<EtcdMember>(scene, &pod.name_any()).await?;
        }
        Blow::TwoMembersDeleted(n) => {
            let Some((one, role)) = choose(scene, cluster, Who::Leader).await else {
                return Ok(Outcome::Nothing);
            };
            let others: Vec<Pod> =
                pods(scene, cluster).await.into_iter().filter(|p| p.name_any() != one.name_any()).collect();
            let Some(other) = others.get(n % others.len().max(1)) else { return Ok(Outcome::Nothing) };
            say(&format!("EtcdMembers of {role}{} and {} deleted", named(&one), named(other)));
            delete::<EtcdMember>(scene, &one.name_any()).await?;
            delete::<EtcdMember>(scene, &other.name_any()).await?;
        }
        Blow::PodDeleted(who) => {
            let Some((pod, role)) = choose(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
            say(&format!("Pod of {role}{} deleted", named(&pod)));
            delete::<Pod>(scene, &pod.name_any()).await?;
        }
        Blow::PodEvicted(who) => {
            let Some((pod, role)) = choose(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
            let answer = evict(&scene.api(), &pod.name_any()).await?;
            let kept = if answer == Answer::NotNow { ": not now" } else { "" };
            say(&format!("Pod of {role}{} evicted{kept}", named(&pod)));
        }
        Blow::AllPodsDeleted => {
            say(&format!("all Pods of {cluster} deleted"));
            for pod in pods(scene, cluster).await {
                delete::<Pod>(scene, &pod.name_any()).await?;
            }
        }
        Blow::ContainerKilled(who) => {
            let Some((pod, role)) = choose(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
            let member = [pod.name_any()];
            if frozen::of(&member).len() != 1 {
                return Ok(Outcome::Nothing);
            }
            say(&format!("container of {role}{} killed", named(&pod)));
            frozen::kill(&member);
        }
        Blow::ServiceEdited { client } => {
            let service = service(cluster, client);
            say(&format!("Service {service} edited"));
            let wrong = json!({"spec": {"selector": {"app": "mine"},
                "ports": [{"name": "http", "port": 80, "targetPort": 80}]}});
            patch::<Service>(scene, &service, wrong).await?;
        }
        Blow::ServiceDeleted { client } => {
            let service = service(cluster, client);
            say(&format!("Service {service} deleted"));
            delete::<Service>(scene, &service).await?;
        }
        Blow::LabelsStripped(who) => {
            let Some((pod, role)) = choose(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
            say(&format!(
                "labels stripped from Pod and volume of {role}{}, and from the Services",
                named(&pod)
            ));
            let none = |extra: &str| json!({"metadata": {"labels": {labels::MANAGED_BY: null, labels::CLUSTER: null, extra: null}}});
            patch::<Pod>(scene, &pod.name_any(), none(labels::ROLE)).await?;
            patch::<PersistentVolumeClaim>(scene, &names::pvc(&pod.name_any()), none(labels::CLUSTER))
                .await?;
            for client in [true, false] {
                patch::<Service>(scene, &service(cluster, client), none(labels::CLUSTER)).await?;
            }
        }
        Blow::DataWiped(who) => return Ok(losses::wipe(scene, cluster, who).await),
        Blow::VolumeDeleted(who) => return losses::delete_volume(scene, cluster, who).await,
        Blow::VolumeLost(n) => return losses::lose(scene, cluster, Who::Nth(n)).await,
        Blow::Edited(edit) => {
            say(&format!("spec of {cluster} edited: {}", edit.patch()));
            scene.edit(cluster, json!({"spec": edit.patch()})).await;
        }
    }
    Ok(Outcome::Done)
}

/// The Pods of a cluster that are not on their way out, by name.
pub(crate) async fn pods(scene: &Scene, cluster: &str) -> Vec<Pod> {
    let prefix = format!("{cluster}-");
    let all = scene.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    let mut pods: Vec<Pod> = all.into_iter().filter(|p| p.name_any().starts_with(&prefix)).collect();
    pods.retain(|p| p.metadata.deletion_timestamp.is_none());
    pods.sort_by_key(kube::ResourceExt::name_any);
    pods
}

/// A Pod, and what it is beside its name. Without a leader the first one by name.
pub(crate) async fn choose(scene: &Scene, cluster: &str, who: Who) -> Option<(Pod, &'static str)> {
    let pods = pods(scene, cluster).await;
    let leader = match who {
        Who::Leader => etcd::leader(scene, cluster).await.ok(),
        Who::Nth(_) | Who::Seed => None,
    };
    if let Some((leader, _)) = leader
        && let Some(pod) = pods.iter().find(|p| p.name_any() == leader)
    {
        return Some((pod.clone(), "the leader "));
    }
    let n = if let Who::Nth(n) = who { n } else { 0 };
    pods.get(n % pods.len().max(1)).cloned().map(|pod| (pod, ""))
}

pub(crate) fn named(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or("no node");
    format!("{} on {node}", pod.name_any())
}

fn nth(nodes: Vec<Node>, n: usize) -> Node {
    let n = n % nodes.len();
    nodes.into_iter().nth(n).expect("the testbed has nodes")
}

fn service(cluster: &str, client: bool) -> String {
    if client { names::client_service(cluster) } else { names::headless_service(cluster) }
}

pub(crate) async fn delete<K>(scene: &Scene, name: &str) -> Result<(), String>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + k8s_openapi::serde::de::DeserializeOwned,
{
    let api: Api<K> = scene.api();
    gone(api.delete(name, &DeleteParams::default()).await)
}

async fn patch<K>(scene: &Scene, name: &str, patch: Value) -> Result<(), String>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + k8s_openapi::serde::de::DeserializeOwned,
{
    let api: Api<K> = scene.api();
    gone(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

/// Who has gone meanwhile has been hit enough.
fn gone<T>(done: kube::Result<T>) -> Result<(), String> {
    match done {
        Err(kube::Error::Api(e)) if e.code == 404 => Ok(()),
        done => done.map(drop).map_err(|e| e.to_string()),
    }
}
