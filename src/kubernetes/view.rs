//! Translates stored objects into the views that decisions are taken on. Pure.

use etcd_operator_api::{
    DriftMode, EtcdCluster, EtcdMember, ObservedClusterSpec, StorageMedium, StorageSpec, bytes, conditions,
    labels, names,
};
use etcd_operator_core::{
    ids::ClusterId,
    reason::Reason,
    roll::{Blueprint, Permit},
    time::Time,
    view::{
        ClusterRecord, ClusterView, Drift, JoinInstruction, MemberRecord, MemberView, PodTrouble, PodView,
        PvcView, RefusedField, SpecWarning, Target,
    },
};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1},
};
use kube::ResourceExt;

use crate::{
    drift::missing,
    objects::{self, is_controlled_by},
    recovery,
};

/// The time that an API server's timestamp shows.
pub fn time(time: &v1::Time) -> Time {
    Time(u64::try_from(time.0.as_millisecond()).unwrap_or_default())
}

fn uid<K: ResourceExt>(object: &K) -> etcd_operator_core::ids::Uid {
    object.uid().unwrap_or_default().into()
}

/// Everything of a spec but the number of members, as one comparable text. Two specs with the same
/// text make the same members.
pub fn template(spec: &ObservedClusterSpec) -> String {
    let mut template = spec.clone();
    template.replicas = 0;
    // A value that was just read from JSON can be written as JSON.
    serde_json::to_string(&template).unwrap_or_default()
}

/// The parts of a spec that reach existing members in different ways. What cannot change is left out.
pub fn blueprint(spec: &ObservedClusterSpec) -> Blueprint {
    let metadata = serde_json::to_string(&spec.additional_metadata).unwrap_or_default();
    let mut pod = spec.clone();
    pod.replicas = 0;
    pod.version = String::new();
    pod.storage = StorageSpec::default();
    pod.additional_metadata = None;
    Blueprint {
        version: spec.version.parse().ok(),
        size: bytes(&spec.storage.size).and_then(|size| u64::try_from(size).ok()),
        pod: serde_json::to_string(&pod).unwrap_or_default(),
        metadata,
    }
}

/// A cluster.
pub fn cluster(object: &EtcdCluster) -> ClusterView {
    let spec = ObservedClusterSpec::from(&object.spec);
    let not_yet = object.spec.unsupported().into_iter().map(|u| RefusedField {
        field: u.field.to_owned(),
        why: u.why.to_owned(),
        not_yet: true,
    });
    let never = object.invalid().into_iter().map(|i| RefusedField {
        field: i.field.to_owned(),
        why: i.why,
        not_yet: false,
    });
    let damaged = damaged_cluster_id(object).map(|id| RefusedField {
        field: "status.clusterID".to_owned(),
        why: format!("{id:?} is not a cluster ID; put back the one that etcdctl reports, or clear it if the cluster never formed"),
        not_yet: false,
    });
    let paused = object.annotations().get(labels::RECONCILE_PAUSED).is_some_and(|v| v == "true");
    ClusterView {
        name: object.name_any(),
        uid: uid(object),
        deleting: object.metadata.deletion_timestamp.is_some(),
        paused,
        refused: not_yet.chain(never).chain(damaged).collect(),
        replicas: usize::try_from(object.spec.replicas).unwrap_or_default(),
        template: template(&spec),
        blueprint: blueprint(&spec),
        rolls: object.spec.rolls(),
        recover_from: object.annotations().get(labels::RECOVER_FROM).cloned(),
        warnings: warnings(object),
        progress_deadline_seconds: u64::try_from(object.spec.progress_deadline_seconds).unwrap_or_default(),
        recorded: cluster_record(object),
    }
}

fn warnings(object: &EtcdCluster) -> Vec<SpecWarning> {
    let memory = object.spec.memory_limit_too_small();
    memory.map(|words| SpecWarning { reason: Reason::MemoryLimitTooSmall, words }).into_iter().collect()
}

fn damaged_cluster_id(object: &EtcdCluster) -> Option<&str> {
    let id = object.status.as_ref()?.cluster_id.as_deref()?;
    id.parse::<etcd_operator_core::ids::ClusterId>().is_err().then_some(id)
}

fn cluster_record(object: &EtcdCluster) -> ClusterRecord {
    let Some(status) = &object.status else { return ClusterRecord::default() };
    ClusterRecord {
        // One that cannot be read is refused in `cluster`, so its absence here leads to nothing.
        cluster_id: status.cluster_id.as_ref().and_then(|id| id.parse().ok()),
        target: status.observed.as_ref().map(|observed| Target {
            replicas: usize::try_from(observed.replicas).unwrap_or_default(),
            template: template(observed),
            blueprint: blueprint(observed),
        }),
        progress_deadline: status.progress_deadline.as_ref().map(time),
        drift: status.drift.map(|drift| match drift {
            DriftMode::Accepted => Drift::Accepted,
            DriftMode::Rolled => Drift::Rolled,
        }),
        recovery: status.recovery.as_ref().map(recovery::recorded),
        refused_recovery: status.refused_recovery.as_ref().map(recovery::refused),
    }
}

/// A member.
pub fn member(object: &EtcdMember) -> MemberView {
    let status = object.status.clone().unwrap_or_default();
    MemberView {
        name: object.name_any().into(),
        uid: uid(object),
        peer_url: objects::peer_url(object).into(),
        seed: object.spec.bootstrap,
        founds: ClusterId(objects::founds(object)),
        dormant: object.spec.dormant,
        memory: object.spec.storage.medium == StorageMedium::Memory,
        initial_cluster: object.spec.initial_cluster.clone(),
        created: object.metadata.creation_timestamp.as_ref().map(time).unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.as_ref().map(time),
        finalizer: object.finalizers().iter().any(|f| f == labels::MEMBER_FINALIZER),
        blueprint: blueprint(&ObservedClusterSpec::from(&object.spec)),
        generation: object.metadata.generation.and_then(|n| u64::try_from(n).ok()).unwrap_or_default(),
        pod_generation: noted(object.annotations(), labels::POD_GENERATION),
        permit: object.annotations().get(labels::PERMIT).and_then(|text| Permit::from_text(text)),
        recorded: MemberRecord {
            version: status.version.as_ref().and_then(|version| version.parse().ok()),
            member_id: status.member_id.as_ref().and_then(|id| id.parse().ok()),
            is_voter: status.is_voter,
            ready: conditions::is_true(&status.conditions, conditions::READY),
            pvc_uid: status.pvc_uid.clone().map(Into::into),
            pod_uid: status.pod_uid.clone().map(Into::into),
        },
    }
}

/// The Pod of the EtcdMember `owner`.
pub fn pod(object: &Pod, owner: &EtcdMember) -> PodView {
    let owner_uid = owner.uid().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let container = status
        .container_statuses
        .as_deref()
        .unwrap_or_default()
        .iter()
        .find(|c| c.name == names::CONTAINER)
        .cloned();
    let phase = status.phase.as_deref();
    let condition = |kind: &str| {
        status
            .conditions
            .as_deref()
            .unwrap_or_default()
            .iter()
            .find(|c| c.type_ == kind && c.status == "True")
    };
    let wanted = objects::labels_of(owner);
    let annotations = objects::annotations_of(owner);
    PodView {
        uid: uid(object),
        ours: is_controlled_by(&object.metadata, &owner_uid),
        created: object.metadata.creation_timestamp.as_ref().map(time).unwrap_or_default(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        ended: matches!(phase, Some("Failed" | "Succeeded")),
        ip: status.pod_ip.as_ref().and_then(|ip| ip.parse().ok()),
        node: object.spec.as_ref().and_then(|s| s.node_name.clone()),
        zone: object.labels().get(labels::ZONE).cloned(),
        started: container.as_ref().and_then(|c| c.started).unwrap_or(false),
        ready: condition("Ready").is_some(),
        voter_label: object.labels().get(labels::ROLE).is_some_and(|role| role == labels::ROLE_VOTER),
        labels_right: is_right(&object.metadata, &wanted, &annotations),
        instruction: instruction(object),
        made_from: noted(object.annotations(), labels::MEMBER_GENERATION),
        restarts: container.as_ref().map_or(0, |c| u32::try_from(c.restart_count).unwrap_or_default()),
        trouble: trouble(object, container.as_ref()),
        // Every other Pod of ours is started again by the kubelet, and no Pod ever changes this.
        rewrites: object.spec.as_ref().is_some_and(|s| s.restart_policy.as_deref() == Some("Never")),
    }
}

/// A generation from its annotation; 0 if it was never noted or was damaged, so that nothing rests on it.
fn noted(annotations: &std::collections::BTreeMap<String, String>, key: &str) -> u64 {
    annotations.get(key).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn instruction(object: &Pod) -> Option<JoinInstruction> {
    objects::read_instruction(object.metadata.annotations.as_ref())
}

/// What keeps a Pod from running. A container that is being created is no trouble, however long it takes.
fn trouble(pod: &Pod, container: Option<&ContainerStatus>) -> Option<PodTrouble> {
    let status = pod.status.as_ref()?;
    let unschedulable = status.conditions.as_deref().unwrap_or_default().iter().find(|c| {
        c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unschedulable {
        return Some(PodTrouble::Unschedulable(first_sentence(condition.message.as_deref())));
    }
    let state = container?;
    let last = state.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    let now = state.state.as_ref();
    let terminated = now.and_then(|s| s.terminated.as_ref()).or(last);
    let waiting = now.and_then(|s| s.waiting.as_ref());
    let words = |text: Option<&str>| first_sentence(text);
    if let Some(waiting) = waiting {
        let message = waiting.message.as_deref();
        match waiting.reason.as_deref() {
            // "ErrImagePull" alternates with "ImagePullBackOff"; the image is what a person needs.
            Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => {
                return Some(PodTrouble::ImagePull(format!("image {} cannot be pulled", image(pod))));
            }
            Some("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
                return Some(PodTrouble::CannotStart(words(message)));
            }
            _ => {}
        }
    }
    // Between two ends it runs for a moment. It is in trouble until it has come further than the last time,
    // else the condition would change its mind at each restart (MT-03).
    let not_up = now.is_some_and(|s| s.running.is_some()) && state.started != Some(true);
    let ended_badly = waiting.and_then(|w| w.reason.as_deref()) == Some("CrashLoopBackOff")
        || now.is_some_and(|s| s.terminated.as_ref().is_some_and(|t| t.exit_code != 0))
        || (not_up && last.is_some_and(|t| t.exit_code != 0));
    if !ended_badly {
        return None;
    }
    let terminated = terminated?;
    if terminated.reason.as_deref() == Some("OOMKilled") {
        return Some(PodTrouble::OutOfMemory);
    }
    Some(PodTrouble::CrashLooping(last_words(terminated.message.as_deref())))
}

fn image(pod: &Pod) -> String {
    let containers = pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default();
    let etcd = containers.iter().find(|c| c.name == names::CONTAINER);
    etcd.and_then(|c| c.image.clone()).unwrap_or_else(|| "of etcd".to_owned())
}

/// Text from others, short enough for a condition and without what changes at each occurrence: long
/// hexadecimal words are IDs of containers and sandboxes, new ones at each try.
fn first_sentence(text: Option<&str>) -> String {
    let text = text.unwrap_or("no reason given").trim();
    let sentence = text.split(". ").next().unwrap_or(text);
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let mut said = String::new();
    let mut rest = sentence;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let id = word.len() >= 12
            && word.bytes().all(|b| b.is_ascii_hexdigit())
            && word.bytes().any(|b| b.is_ascii_digit());
        said.push_str(if id { "..." } else { word });
        let end = after.find(is_word).unwrap_or(after.len());
        let (between, after) = after.split_at(end);
        said.push_str(between);
        rest = after;
    }
    said.chars().take(300).collect()
}

/// The frames of the panic of an etcd that cannot read an entry of its log. Its stack is longer than what the kubelet keeps,
/// so its words are never seen.
const FOREIGN_ENTRY: [&str; 2] = ["pbutil.MustUnmarshal", "etcdserver/apply.Apply("];
/// The first words are etcd's own.
const FOREIGN_WORDS: &str = "unmarshal should never fail: its log has entries of a version of etcd that this one cannot read; set version back, and see docs/operations.md";

/// etcd's own last message: of a JSON log line, its `msg` and `error`; times stay out. Only of a line that ends the
/// process: a receiver's "unexpected EOF", logged as an error before somebody kills it, says nothing of its data. The first line of a panic says it
/// once more, and alone where its stack has pushed the log line out of the 2048 bytes that the kubelet keeps.
fn last_words(text: Option<&str>) -> String {
    let text = text.unwrap_or_default();
    let panic = |line: &str| {
        let start = ["panic: ", "fatal error: "].into_iter().find_map(|start| line.strip_prefix(start));
        start.map(str::to_owned)
    };
    let panicked = text.lines().rev().find_map(panic);
    let said = text.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let grave = matches!(line["level"].as_str(), Some("fatal" | "panic"));
        let message = line["msg"].as_str().filter(|_| grave)?.to_owned();
        if panicked.as_ref().is_some_and(|panic| *panic != message) {
            return None;
        }
        Some(match line["error"].as_str() {
            Some(error) => format!("{message}: {error}"),
            None => message,
        })
    });
    let unread = || FOREIGN_ENTRY.iter().all(|frame| text.contains(frame)).then(|| FOREIGN_WORDS.to_owned());
    let words =
        said.or(panicked).or_else(unread).unwrap_or_else(|| "its process ended; see its log".to_owned());
    words.chars().take(300).collect()
}

/// The PVC of the EtcdMember `owner`.
pub fn pvc(object: &PersistentVolumeClaim, owner: &EtcdMember) -> PvcView {
    let storage = |map: Option<&std::collections::BTreeMap<String, Quantity>>| {
        let size = bytes(map?.get("storage")?)?;
        u64::try_from(size).ok()
    };
    let requested = object.spec.as_ref().and_then(|s| s.resources.as_ref()?.requests.as_ref());
    let status = object.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let pending = conditions.iter().find(|c| c.type_ == "FileSystemResizePending" && c.status == "True");
    let resize_pending = pending.map(|c| c.last_transition_time.as_ref().map(time).unwrap_or_default());
    PvcView {
        uid: uid(object),
        ours: is_controlled_by(&object.metadata, &owner.uid().unwrap_or_default()),
        deleting: object.metadata.deletion_timestamp.is_some(),
        labels_right: is_right(&object.metadata, &objects::labels_of(owner), &objects::annotations_of(owner)),
        requested: storage(requested),
        capacity: storage(status.and_then(|s| s.capacity.as_ref())),
        resize_pending,
    }
}

/// Whether every wanted entry is there, and none that was wanted before. Others' entries are none of our business.
fn is_right(
    meta: &v1::ObjectMeta,
    labels: &std::collections::BTreeMap<String, String>,
    annotations: &std::collections::BTreeMap<String, String>,
) -> bool {
    missing(meta.labels.as_ref(), Some(labels)).is_none()
        && missing(meta.annotations.as_ref(), Some(annotations)).is_none()
        && objects::extra::is_fresh(meta, labels, annotations)
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
