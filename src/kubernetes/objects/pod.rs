//! Builds a member's Pod. Pure.
//!
//! How etcd is told to start is not in the Pod's spec but in two annotations, which the kubelet
//! reads into variables at each start of the container. So it follows the member's phase without
//! the Pod being made anew.

use std::collections::BTreeMap;

use etcd_operator_api::{EtcdMember, StorageMedium, labels, names};
use etcd_operator_core::view::JoinInstruction;
use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction,
        ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, Probe,
        ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};

use super::{
    BuildError, Owner, address,
    flags::{self, CLIENT_TLS_DIR, DATA_DIR, JOIN_CLUSTER, JOIN_STATE, PEER_TLS_DIR},
    scheduling::{scheduling, some},
};

/// The user and group that etcd runs as.
const USER: i64 = 65532;
const CLIENT_TLS_VOLUME: &str = "client-tls";
const PEER_TLS_VOLUME: &str = "peer-tls";

/// What the operator's own configuration says about Pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSettings {
    /// The image without its tag; the tag is `v<version>`.
    pub image_repository: String,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self { image_repository: "quay.io/coreos/etcd".to_owned() }
    }
}

/// The member's Pod, which starts etcd as `instruction` says.
///
/// # Errors
/// If the member was not read from the API server, or its version is one without known flags.
pub fn pod(
    member: &EtcdMember,
    settings: &PodSettings,
    instruction: &JoinInstruction,
) -> Result<Pod, BuildError> {
    build(member, settings, instruction, flags::args(member)?)
}

/// The Pod in which the survivor of a recovery runs once: the same in all but its command line and that the kubelet
/// never starts it again, since each start with `--force-new-cluster` would drop the members that have joined since.
/// It bears the member's name, so that no other Pod of the member can be there.
///
/// # Errors
/// See [`pod`].
pub fn recovery_pod(
    member: &EtcdMember,
    settings: &PodSettings,
    instruction: &JoinInstruction,
) -> Result<Pod, BuildError> {
    let mut pod = build(member, settings, instruction, flags::recovery_args(member)?)?;
    if let Some(spec) = &mut pod.spec {
        spec.restart_policy = Some("Never".to_owned());
    }
    Ok(pod)
}

fn build(
    member: &EtcdMember,
    settings: &PodSettings,
    instruction: &JoinInstruction,
    args: Vec<String>,
) -> Result<Pod, BuildError> {
    let owner = Owner::of(member)?;
    let spec = &member.spec;
    Ok(Pod {
        metadata: owner.meta(
            owner.name.to_owned(),
            labels::for_member(&spec.cluster_name, owner.name),
            annotations(member, instruction),
            spec.additional_metadata.as_ref(),
        ),
        spec: Some(PodSpec {
            hostname: Some(owner.name.to_owned()),
            subdomain: Some(address::service(member)),
            restart_policy: Some("Always".to_owned()),
            automount_service_account_token: Some(false),
            // Each Service would become a dozen variables, and etcd takes ETCD_* for flags (DN-07).
            enable_service_links: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                run_as_group: Some(USER),
                fs_group: Some(USER),
                // A large volume is not walked through at each start.
                fs_group_change_policy: Some("OnRootMismatch".to_owned()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..Default::default()
            }),
            image_pull_secrets: some(spec.image_pull_secrets.clone()),
            containers: vec![container(member, settings, args)],
            volumes: Some(volumes(member, &names::pvc(owner.name))),
            ..scheduling(member)
        }),
        status: None,
    })
}

fn annotations(member: &EtcdMember, instruction: &JoinInstruction) -> BTreeMap<String, String> {
    let generation = member.metadata.generation.unwrap_or_default().to_string();
    let mut annotations = instruction_annotations(instruction);
    annotations.insert(labels::MEMBER_GENERATION.to_owned(), generation);
    annotations
}

/// The annotations that carry the join instruction.
pub fn instruction_annotations(instruction: &JoinInstruction) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::INITIAL_CLUSTER.to_owned(), instruction.initial_cluster().to_owned()),
        (labels::INITIAL_CLUSTER_STATE.to_owned(), instruction.state().to_owned()),
    ])
}

/// The join instruction that a Pod's annotations carry; none if they are missing or damaged.
pub fn read_instruction(annotations: Option<&BTreeMap<String, String>>) -> Option<JoinInstruction> {
    let annotations = annotations?;
    let initial_cluster = annotations.get(labels::INITIAL_CLUSTER)?.clone();
    match annotations.get(labels::INITIAL_CLUSTER_STATE)?.as_str() {
        "new" => Some(JoinInstruction::New { initial_cluster }),
        "existing" => Some(JoinInstruction::Existing { initial_cluster }),
        _ => None,
    }
}

fn container(member: &EtcdMember, settings: &PodSettings, args: Vec<String>) -> Container {
    Container {
        name: names::CONTAINER.to_owned(),
        image: Some(format!("{}:v{}", settings.image_repository, member.spec.version)),
        command: Some(vec!["etcd".to_owned()]),
        args: Some(args),
        env: Some(vec![
            from_annotation(JOIN_CLUSTER, labels::INITIAL_CLUSTER),
            from_annotation(JOIN_STATE, labels::INITIAL_CLUSTER_STATE),
        ]),
        ports: Some(vec![
            port("client", names::CLIENT_PORT),
            port("peer", names::PEER_PORT),
            port("metrics", names::METRICS_PORT),
        ]),
        resources: Some(resources(member.spec.resources.clone())),
        volume_mounts: Some(mounts(member)),
        startup_probe: Some(startup_probe()),
        readiness_probe: Some(readiness_probe()),
        liveness_probe: Some(liveness_probe()),
        // etcd's last words then arrive with the Pod's status, and nobody need read logs.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn from_annotation(variable: &str, annotation: &str) -> EnvVar {
    EnvVar {
        name: variable.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: format!("metadata.annotations['{annotation}']"),
            }),
            ..Default::default()
        }),
    }
}

fn port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    }
}

/// The user's resources. The default requests stand in only where the user set neither requests
/// nor limits: claims alone say nothing about them, and limits alone are requests too.
fn resources(wanted: Option<ResourceRequirements>) -> ResourceRequirements {
    let mut wanted = wanted.unwrap_or_default();
    let unset = |map: &Option<BTreeMap<String, Quantity>>| map.as_ref().is_none_or(BTreeMap::is_empty);
    if unset(&wanted.requests) && unset(&wanted.limits) {
        wanted.requests = Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity("100m".to_owned())),
            ("memory".to_owned(), Quantity("128Mi".to_owned())),
        ]));
    }
    wanted
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("metrics".to_owned()),
            scheme: Some("HTTP".to_owned()),
            ..Default::default()
        }),
        success_threshold: Some(1),
        ..Default::default()
    }
}

/// Every second, so that a start is seen at once, and for two hours: at 5 MB/s that is 36 GB of
/// snapshot, four times etcd's largest advised database. Killing a member that catches up only makes
/// it begin again.
fn startup_probe() -> Probe {
    Probe {
        period_seconds: Some(1),
        timeout_seconds: Some(5),
        failure_threshold: Some(7_200),
        ..probe("/livez")
    }
}

/// `/readyz` asks for a linearizable read, which etcd itself gives up after 7 s (5 s and two
/// election timeouts); a shorter limit would turn a slow answer into silence.
fn readiness_probe() -> Probe {
    Probe {
        period_seconds: Some(5),
        timeout_seconds: Some(8),
        failure_threshold: Some(2),
        ..probe("/readyz")
    }
}

/// `/livez` needs no quorum and no leader. Two minutes without an answer is a process that hangs;
/// anything shorter would kill healthy members on a slow disk (MQ-15).
fn liveness_probe() -> Probe {
    Probe {
        period_seconds: Some(10),
        timeout_seconds: Some(10),
        failure_threshold: Some(12),
        ..probe("/livez")
    }
}

fn tls_secrets(member: &EtcdMember) -> Vec<(&'static str, &'static str, String)> {
    let Some(tls) = &member.spec.tls else { return Vec::new() };
    let client =
        tls.client_server_secret_ref.as_ref().map(|s| (CLIENT_TLS_VOLUME, CLIENT_TLS_DIR, s.name.clone()));
    let peer = tls.peer_secret_ref.as_ref().map(|s| (PEER_TLS_VOLUME, PEER_TLS_DIR, s.name.clone()));
    client.into_iter().chain(peer).collect()
}

fn mounts(member: &EtcdMember) -> Vec<VolumeMount> {
    let data = VolumeMount {
        name: names::DATA_VOLUME.to_owned(),
        mount_path: DATA_DIR.to_owned(),
        ..Default::default()
    };
    let tls = tls_secrets(member).into_iter().map(|(volume, path, _)| VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(true),
        ..Default::default()
    });
    std::iter::once(data).chain(tls).collect()
}

fn volumes(member: &EtcdMember, claim: &str) -> Vec<Volume> {
    let mut data = Volume { name: names::DATA_VOLUME.to_owned(), ..Default::default() };
    match member.spec.storage.medium {
        StorageMedium::Volume => {
            data.persistent_volume_claim =
                Some(PersistentVolumeClaimVolumeSource { claim_name: claim.to_owned(), read_only: None });
        }
        StorageMedium::Memory => {
            data.empty_dir = Some(EmptyDirVolumeSource {
                medium: Some("Memory".to_owned()),
                size_limit: Some(member.spec.storage.size.clone()),
            });
        }
    }
    let tls = tls_secrets(member).into_iter().map(|(volume, _, secret)| Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource { secret_name: Some(secret), ..Default::default() }),
        ..Default::default()
    });
    std::iter::once(data).chain(tls).collect()
}
