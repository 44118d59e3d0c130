//! Whether a cluster is what its spec says, seen from every side at once. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, StorageMedium, conditions, labels, names};
use etcd_operator_testbed::{eventually, object};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Resource, ResourceExt as _};

use super::{Scene, etcd};

/// What follows from the last change by itself: labels, endpoints, readiness.
const SETTLE: Duration = Duration::from_secs(15);

/// Waits until the status says that the cluster has `n` ready members and nothing more to do, and checks at that
/// very moment that etcd agrees (LP-03); then checks every other side.
pub async fn converged(scene: &Scene, name: &str, n: usize, limit: Duration) -> EtcdCluster {
    let what = format!("EtcdCluster {name} settled with {n} members");
    object(scene.api::<EtcdCluster>(), name, &what, limit, |cluster: Option<&EtcdCluster>| {
        settled(cluster.ok_or("there is no such EtcdCluster")?, n).map(drop)
    })
    .await
    .unwrap();
    let list = etcd::list(scene, name).await.unwrap();
    assert_eq!(list.counts(), (n, 0), "the status says settled, and etcd lists {list:?}");
    eventually(&format!("{name} the same from every side"), SETTLE, async || check(scene, name, n).await)
        .await
        .unwrap();
    scene.get(name).await
}

/// Until the scheduler, the kubelet or etcd has said what is wrong and the operator has passed it on.
pub const NOTICED: Duration = Duration::from_secs(60);

/// Waits until a condition of the cluster `name` has this status and reason and its message has this text.
pub async fn says(scene: &Scene, name: &str, [kind, status, reason, text]: [&str; 4]) {
    says_within(scene, name, [kind, status, reason, text], NOTICED).await;
}

/// As [`says`], at most for `limit`.
pub async fn says_within(
    scene: &Scene,
    name: &str,
    [kind, status, reason, text]: [&str; 4],
    limit: Duration,
) {
    let what = format!("{kind}={status} {reason}: {text}");
    object(scene.api::<EtcdCluster>(), name, &what, limit, |cluster: Option<&EtcdCluster>| {
        let cluster = cluster.ok_or("it is gone")?;
        let all = cluster.status_or_default().conditions;
        let right = conditions::find(&all, kind)
            .is_some_and(|c| c.status == status && c.reason == reason && c.message.contains(text));
        if right { Ok(()) } else { Err(words(cluster)) }
    })
    .await
    .unwrap();
}

/// The status says `n` members, nothing to do, nothing wrong, about the present generation.
fn settled(cluster: &EtcdCluster, n: usize) -> Result<&EtcdCluster, String> {
    let status = cluster.status_or_default();
    let wanted = [
        (conditions::AVAILABLE, "True"),
        (conditions::PROGRESSING, "False"),
        (conditions::DEGRADED, "False"),
    ];
    let right = wanted.iter().all(|(kind, value)| {
        conditions::find(&status.conditions, kind)
            .is_some_and(|c| c.status == *value && c.observed_generation == cluster.metadata.generation)
    });
    let reconciled = conditions::find(&status.conditions, conditions::PROGRESSING)
        .is_some_and(|c| c.reason == "Reconciled");
    if right && reconciled && usize::try_from(status.ready_members) == Ok(n) {
        return Ok(cluster);
    }
    Err(words(cluster))
}

/// A status in a few words, for the message of a test that failed.
pub fn words(cluster: &EtcdCluster) -> String {
    let status = cluster.status_or_default();
    let conditions = status.conditions.iter().map(|c| {
        let behind =
            if c.observed_generation == cluster.metadata.generation { "" } else { " (old generation)" };
        format!("{}={} {}{behind}: {}", c.type_, c.status, c.reason, c.message)
    });
    let conditions = conditions.collect::<Vec<_>>().join("; ");
    format!(
        "{} ready, {} broken, cluster ID {:?}; {conditions}",
        status.ready_members, status.broken_members, status.cluster_id
    )
}

/// Every side at once, now.
///
/// # Errors
/// The first thing that is not right.
pub async fn check(scene: &Scene, name: &str, n: usize) -> Result<(), String> {
    let cluster = scene.get(name).await;
    settled(&cluster, n)?;
    let status = cluster.status_or_default();
    let uid = cluster.uid().unwrap_or_default();
    let token = names::cluster_token(scene.namespace.name(), name, &uid);
    expect("clusterToken", &status.cluster_token, &Some(token.clone()))?;
    expect("brokenMembers", &status.broken_members, &0)?;
    expect("selector", &status.selector, &Some(labels::as_text(&labels::voter_selector(name))))?;

    let list = etcd::list(scene, name).await?;
    expect("voters and learners", &list.counts(), &(n, 0))?;
    expect("clusterID", &status.cluster_id, &Some(list.cluster_id.clone()))?;

    let selector = labels::as_text(&labels::cluster_selector(name));
    let selected = ListParams::default().labels(&selector);
    let members = scene.api::<EtcdMember>().list(&selected).await.map_err(|e| e.to_string())?.items;
    let ours: BTreeSet<_> = members.iter().map(|m| identity(scene, name, m)).collect();
    let etcds: BTreeSet<_> =
        list.members.iter().map(|m| (Some(m.id.clone()), m.name.clone(), m.peer_urls.join(","))).collect();
    expect("EtcdMembers and etcd's members", &ours, &etcds)?;
    for member in &members {
        check_member(member, &cluster, &token)?;
    }

    let pods = scene.api::<Pod>().list(&selected).await.map_err(|e| e.to_string())?.items;
    let pvcs = scene.api::<PersistentVolumeClaim>().list(&selected).await.map_err(|e| e.to_string())?.items;
    // Data in memory needs no volume.
    let in_memory = cluster.spec.storage.medium == StorageMedium::Memory;
    let volumes = members.iter().filter(|_| !in_memory).map(|m| names::pvc(&m.name_any())).collect();
    expect("PVCs", &names_of(&pvcs), &volumes)?;
    expect("Pods", &names_of(&pods), &names_of(&members))?;
    for member in &members {
        let is_it = |name: &str, object: &kube::api::ObjectMeta| object.name.as_deref() == Some(name);
        let pod = pods.iter().find(|p| is_it(&member.name_any(), &p.metadata)).ok_or("no Pod")?;
        let pvc = pvcs.iter().find(|p| is_it(&names::pvc(&member.name_any()), &p.metadata));
        check_pod(pod, pvc, member, name)?;
    }
    check_services(scene, name, &uid).await?;
    check_budget(scene, name, n, &uid).await?;
    check_endpoints(scene, name, &pods).await
}

fn expect<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, is: &T, wanted: &T) -> Result<(), String> {
    if is == wanted { Ok(()) } else { Err(format!("{what}: {is:?}, not {wanted:?}")) }
}

fn names_of<K: Resource>(objects: &[K]) -> BTreeSet<String> {
    objects.iter().map(kube::ResourceExt::name_any).collect()
}

/// A member as etcd should list it: ID, name and peer URL (MQ-02, MQ-03).
fn identity(scene: &Scene, cluster: &str, member: &EtcdMember) -> (Option<String>, String, String) {
    let name = member.name_any();
    let service = names::headless_service(cluster);
    let url = names::peer_url(names::Scheme::Http, &name, &service, scene.namespace.name());
    (member.status.clone().unwrap_or_default().member_id, name, url)
}

fn check_member(member: &EtcdMember, cluster: &EtcdCluster, token: &str) -> Result<(), String> {
    let name = member.name_any();
    let status = member.status.clone().unwrap_or_default();
    let owners = member.owner_references();
    expect(
        &format!("owners of {name}"),
        &owners.iter().map(|o| &o.uid).collect(),
        &vec![&cluster.uid().unwrap_or_default()],
    )?;
    expect(
        &format!("finalizer of {name}"),
        &member.finalizers().to_vec(),
        &vec![labels::MEMBER_FINALIZER.to_owned()],
    )?;
    expect(&format!("clusterToken of {name}"), &*member.spec.cluster_token, token)?;
    expect(&format!("isVoter of {name}"), &status.is_voter, &true)?;
    expect(&format!("version of {name}"), &status.version.as_ref(), &Some(&cluster.spec.version))?;
    for (kind, value) in [(conditions::JOINED, true), (conditions::READY, true)] {
        expect(&format!("{kind} of {name}"), &conditions::is_true(&status.conditions, kind), &value)?;
    }
    Ok(())
}

fn check_pod(
    pod: &Pod,
    pvc: Option<&PersistentVolumeClaim>,
    member: &EtcdMember,
    cluster: &str,
) -> Result<(), String> {
    let name = pod.name_any();
    let owner = |meta: &kube::api::ObjectMeta| {
        meta.owner_references.iter().flatten().map(|o| o.uid.clone()).collect::<Vec<_>>()
    };
    let uid = vec![member.uid().unwrap_or_default()];
    expect(&format!("owner of Pod {name}"), &owner(&pod.metadata), &uid)?;
    if let Some(pvc) = pvc {
        expect(&format!("owner of its PVC {name}"), &owner(&pvc.metadata), &uid)?;
    }
    let status = member.status.clone().unwrap_or_default();
    expect(&format!("recorded Pod of {name}"), &status.pod_uid, &pod.uid())?;
    expect(&format!("recorded PVC of {name}"), &status.pvc_uid, &pvc.and_then(|pvc| pvc.uid()))?;
    let mut wanted = labels::for_member(cluster, &name);
    wanted.insert(labels::ROLE.to_owned(), labels::ROLE_VOTER.to_owned());
    let has = |labels: &BTreeMap<String, String>| wanted.iter().all(|(k, v)| labels.get(k) == Some(v));
    if !has(pod.labels()) {
        return Err(format!("labels of Pod {name}: {:?}", pod.labels()));
    }
    // Over data etcd ignores both; without data they keep it from forming a second cluster.
    let annotation = |key| pod.annotations().get(key).cloned().unwrap_or_default();
    expect(&format!("state of {name}"), &*annotation(labels::INITIAL_CLUSTER_STATE), "existing")?;
    let alone = annotation(labels::INITIAL_CLUSTER);
    if !alone.starts_with(&format!("{name}=")) || alone.contains(',') {
        return Err(format!("initial cluster of {name}: {alone}"));
    }
    Ok(())
}

async fn check_services(scene: &Scene, name: &str, uid: &str) -> Result<(), String> {
    let services = scene.api::<Service>();
    let kinds = [
        (
            names::headless_service(name),
            labels::cluster_selector(name),
            vec![("client", 2379), ("peer", 2380)],
            true,
        ),
        (names::client_service(name), labels::voter_selector(name), vec![("client", 2379)], false),
    ];
    for (service, selector, ports, headless) in kinds {
        let found = services.get(&service).await.map_err(|e| e.to_string())?;
        let owners: Vec<_> = found.owner_references().iter().map(|o| o.uid.clone()).collect();
        expect(&format!("owner of Service {service}"), &owners, &vec![uid.to_owned()])?;
        let spec = found.spec.unwrap_or_default();
        expect(&format!("selector of {service}"), &spec.selector, &Some(selector))?;
        let seen: Vec<_> =
            spec.ports.iter().flatten().map(|p| (p.name.clone().unwrap_or_default(), p.port)).collect();
        let ports: Vec<_> = ports.into_iter().map(|(name, port)| (name.to_owned(), port)).collect();
        expect(&format!("ports of {service}"), &seen, &ports)?;
        expect(&format!("{service} is headless"), &(spec.cluster_ip.as_deref() == Some("None")), &headless)?;
        expect(
            &format!("{service} publishes all"),
            &(spec.publish_not_ready_addresses == Some(true)),
            &headless,
        )?;
    }
    Ok(())
}

/// The budget keeps a quorum of the voters, and nothing else stands beside its floor (SD-02, SD-05).
async fn check_budget(scene: &Scene, name: &str, n: usize, uid: &str) -> Result<(), String> {
    let budget = scene.api::<PodDisruptionBudget>().get(&names::disruption_budget(name)).await;
    let budget = budget.map_err(|e| e.to_string())?;
    let owners: Vec<_> = budget.owner_references().iter().map(|o| o.uid.clone()).collect();
    expect("owner of the budget", &owners, &vec![uid.to_owned()])?;
    let floor = i32::try_from(n / 2 + 1).ok().map(IntOrString::Int);
    let wanted = PodDisruptionBudgetSpec {
        min_available: floor,
        selector: Some(LabelSelector {
            match_labels: Some(labels::voter_selector(name)),
            ..LabelSelector::default()
        }),
        ..PodDisruptionBudgetSpec::default()
    };
    expect("the budget", &budget.spec, &Some(wanted))
}

/// Behind the client Service are the voters, and nobody else (LP-07).
async fn check_endpoints(scene: &Scene, name: &str, pods: &[Pod]) -> Result<(), String> {
    let behind = behind(scene, &names::client_service(name)).await?;
    expect("behind the client Service", &behind, &names_of(pods))
}

/// Names of the Pods that are ready behind a Service.
pub async fn behind(scene: &Scene, service: &str) -> Result<BTreeSet<String>, String> {
    let selected = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let slices = scene.api::<EndpointSlice>().list(&selected).await.map_err(|e| e.to_string())?;
    let endpoints = slices.items.into_iter().flat_map(|slice| slice.endpoints);
    Ok(endpoints
        .filter(|e| e.conditions.as_ref().is_some_and(|c| c.ready == Some(true)))
        .filter_map(|e| e.target_ref?.name)
        .collect())
}
