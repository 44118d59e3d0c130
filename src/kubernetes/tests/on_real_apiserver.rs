//! The adapter's promises on a real kube-apiserver: what it defaults, refuses and preserves is its
//! own word there, and not a fake's.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "helpers of tests may end them")]

mod server;

use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, ObservedClusterSpec, Reason, labels};
use etcd_operator_core::{
    ids::Uid,
    time::Time,
    view::{BudgetState, JoinInstruction, ServiceKind, ServiceState},
};
use etcd_operator_kubernetes::{
    drift, drift_budget,
    events::Events,
    failure::ApiFailure,
    gate::{Created, Deleted, Target, Writer},
    lease::{LeaseLoop, LeaseSettings, Ownership},
    objects::{self, NewMember, PodSettings},
    patch,
    reads::Reader,
    stores::{Kind, Stores, Touched},
    view,
};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    events::v1::Event,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use server::Server;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

struct Bench {
    server: std::sync::Arc<Server>,
    client: Client,
    writer: Writer,
    namespace: String,
}

impl Bench {
    async fn new(namespace: &str) -> Option<Self> {
        let server = Server::shared()?;
        let client = server.client();
        let writer = Writer::new(client.clone(), Ownership::without_lease());
        let namespace = server.namespace(namespace).await;
        Some(Self { server, client, writer, namespace })
    }

    async fn cluster(&self, spec: Value) -> EtcdCluster {
        let cluster = serde_json::from_value(json!({
            "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
            "metadata": {"name": "db", "namespace": self.namespace}, "spec": spec}))
        .unwrap();
        self.api().create(&PostParams::default(), &cluster).await.unwrap()
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn member(&self, cluster: &EtcdCluster) -> EtcdMember {
        let target = ObservedClusterSpec::from(&cluster.spec);
        let new = NewMember { name: "db-x7k2p", seed: true };
        let member = objects::member(cluster, &target, new).unwrap();
        match self.writer.create_member(&member).await.unwrap() {
            Created::New(member) => member,
            Created::Exists => panic!("it exists"),
        }
    }

    async fn pod(&self, member: &EtcdMember) -> Pod {
        let instruction = JoinInstruction::New { initial_cluster: member.spec.initial_cluster.clone() };
        let pod = objects::pod(member, &PodSettings::default(), &instruction).unwrap();
        match self.writer.create_pod(&pod).await.unwrap() {
            Created::New(pod) => pod,
            Created::Exists => panic!("it exists"),
        }
    }
}

fn full() -> Value {
    json!({
        "version": "3.6.16",
        "storage": {"size": "20Gi", "storageClassName": ""},
        "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {labels::CLUSTER: "db"}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "options": {"quotaBackendBytes": 8589934592_i64, "autoCompactionRetention": "1h", "snapshotCount": 5000},
        "tolerations": [{"key": "etcd", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        "nodeSelector": {"disk": "nvme"}, "priorityClassName": "system-cluster-critical",
        "additionalMetadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
    })
}

#[tokio::test]
async fn every_object_that_is_built_is_accepted_under_the_restricted_standard() {
    for (namespace, spec) in [("plain", json!({"version": "3.6.16"})), ("full", full())] {
        let Some(bench) = Bench::new(namespace).await else { return };
        let cluster = bench.cluster(spec).await;
        for kind in [ServiceKind::Headless, ServiceKind::Client] {
            let extra = cluster.spec.additional_metadata.as_ref();
            let wanted = objects::service(&cluster, kind, extra).unwrap();
            assert!(matches!(bench.writer.create_service(&wanted).await, Ok(Created::New(_))), "{kind:?}");
        }
        let member = bench.member(&cluster).await;
        let pvc = objects::pvc(&member).unwrap();
        assert!(matches!(bench.writer.create_pvc(&pvc).await, Ok(Created::New(_))));
        let pod = bench.pod(&member).await;
        // What comes back is what a look will see.
        let seen = view::pod(&pod, &member);
        assert!(seen.ours && seen.labels_right && !seen.voter_label);
        assert_eq!(seen.instruction.map(|i| i.state()), Some("new"));
        assert_eq!(bench.writer.create_pvc(&pvc).await, Ok(Created::Exists));
    }
}

#[tokio::test]
async fn a_service_as_stored_has_not_drifted_and_every_edit_takes_one_repair() {
    let Some(bench) = Bench::new("drift").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let owner = cluster.uid().unwrap();
    let services: Api<Service> = bench.api();
    let edits = [
        json!({"spec": {"selector": {"extra": "key"}}}),
        json!({"spec": {"selector": null}}),
        json!({"spec": {"ports": [{"name": "client", "port": 2379, "targetPort": 1}]}}),
        json!({"spec": {"publishNotReadyAddresses": null}}),
        json!({"metadata": {"labels": {labels::MANAGED_BY: null, "foreign": "stays"}}}),
    ];
    for kind in [ServiceKind::Headless, ServiceKind::Client] {
        let wanted = objects::service(&cluster, kind, None).unwrap();
        let Ok(Created::New(stored)) = bench.writer.create_service(&wanted).await else { panic!("{kind:?}") };
        assert_eq!(drift::state(Some(&stored), &wanted, &owner), ServiceState::Right, "{stored:?}");
        let mut all = edits.to_vec();
        if kind == ServiceKind::Client {
            all.push(json!({"spec": {"type": "NodePort"}}));
        }
        for edit in all {
            let edited = services
                .patch(&wanted.name_any(), &PatchParams::default(), &Patch::Merge(&edit))
                .await
                .unwrap();
            let Some(repair) = drift::repair(&edited, &wanted) else {
                // Absent and false are the same to the API server.
                assert!(edit["spec"]["publishNotReadyAddresses"].is_null(), "{edit}");
                continue;
            };
            let target = Target::of(&edited).unwrap();
            let repaired = bench.writer.repair_service(&target, repair).await.unwrap();
            assert_eq!(drift::repair(&repaired, &wanted), None, "{edit}: a second repair would follow");
        }
        let last = services.get(&wanted.name_any()).await.unwrap();
        assert_eq!(last.labels()["foreign"], "stays");
    }
}

// SD-04
#[tokio::test]
async fn a_budget_as_stored_has_not_drifted_and_every_edit_takes_one_repair() {
    let Some(bench) = Bench::new("budget").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let owner = cluster.uid().unwrap();
    let wanted = objects::disruption_budget(&cluster, 2, None).unwrap();
    let mut old = wanted.clone();
    let spec = old.spec.as_mut().unwrap();
    spec.max_unavailable = spec.min_available.take();
    assert!(matches!(bench.writer.create_budget(&old).await, Ok(Created::New(_))));
    assert_eq!(bench.writer.create_budget(&wanted).await, Ok(Created::Exists));
    let right = BudgetState::Present { min_available: 2, right: true };
    let budgets: Api<PodDisruptionBudget> = bench.api();
    for edit in [
        json!({}),
        json!({"spec": {"minAvailable": null, "maxUnavailable": "30%"}}),
        json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}),
        json!({"spec": {"selector": {"matchLabels": {labels::ROLE: null}}}}),
        json!({"metadata": {"labels": {labels::MANAGED_BY: null, "foreign": "stays"}}}),
    ] {
        let patch = Patch::Merge(&edit);
        let edited = budgets.patch("db", &PatchParams::default(), &patch).await.unwrap();
        assert_ne!(drift_budget::state(Some(&edited), &wanted, &owner), right, "{edit}");
        let repair = drift_budget::repair(&edited, &wanted).unwrap();
        let repaired = bench.writer.patch_budget(&Target::of(&edited).unwrap(), repair).await.unwrap();
        assert_eq!(drift_budget::state(Some(&repaired), &wanted, &owner), right, "{edit}");
        assert_eq!(drift_budget::repair(&repaired, &wanted), None, "{edit}: a second repair would follow");
    }
    let last = budgets.get("db").await.unwrap();
    assert_eq!(last.labels()["foreign"], "stays");
    let stale = Target { resource_version: "1".into(), ..Target::of(&last).unwrap() };
    assert!(matches!(bench.writer.delete_budget(&stale).await, Err(ApiFailure::Conflict(_))));
    assert_eq!(bench.writer.delete_budget(&Target::of(&last).unwrap()).await, Ok(Deleted::Requested));
}

#[tokio::test]
async fn a_write_hits_only_the_version_that_was_read() {
    let Some(bench) = Bench::new("versions").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let member = bench.member(&cluster).await;
    let pod = bench.pod(&member).await;
    let read = Target::of(&pod).unwrap();
    let change = json!({"metadata": {"labels": {labels::ROLE: "voter"}}});
    let patched = bench.writer.patch_pod(&read, change.clone()).await.unwrap();
    assert_eq!(patched.labels()[labels::ROLE], "voter");
    let stale = bench.writer.patch_pod(&read, change.clone()).await;
    assert!(matches!(stale, Err(ApiFailure::Conflict(_))), "{stale:?}");
    let stale = bench.writer.delete_pod(&read).await;
    assert!(matches!(stale, Err(ApiFailure::Conflict(_))), "{stale:?}");

    let fresh = Target::of(&patched).unwrap();
    let other = Target { uid: "00000000-0000-4000-8000-000000000000".into(), ..fresh.clone() };
    let wrong = bench.writer.delete_pod(&other).await;
    assert!(matches!(wrong, Err(ApiFailure::Conflict(_))), "{wrong:?}");

    assert_eq!(bench.writer.delete_pod(&fresh).await, Ok(Deleted::Requested));
    assert_eq!(bench.writer.delete_pod(&fresh).await, Ok(Deleted::Gone));
    assert_eq!(bench.writer.patch_pod(&fresh, change).await, Err(ApiFailure::NotFound));
    let missing = Reader::new(bench.client.clone()).get_pod(&bench.namespace, "db-x7k2p").await;
    assert_eq!(missing, Ok(None));

    // Made anew under the same name: what was read before is another object.
    bench.pod(&member).await;
    let change = json!({"metadata": {"labels": {labels::ROLE: "voter"}}});
    let former = bench.writer.patch_pod(&fresh, change).await;
    assert!(matches!(former, Err(ApiFailure::Conflict(_))), "{former:?}");
    let former = bench.writer.delete_pod(&fresh).await;
    assert!(matches!(former, Err(ApiFailure::Conflict(_))), "{former:?}");
}

#[tokio::test]
async fn what_the_api_server_refuses_is_told_apart_from_doubt() {
    let Some(bench) = Bench::new("refusals").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let member = bench.member(&cluster).await;
    let target = Target::of(&member).unwrap();
    let invalid = bench.writer.patch_member(&target, json!({"spec": {"version": "new"}})).await;
    assert!(matches!(invalid, Err(ApiFailure::Invalid(_))), "{invalid:?}");
    let instruction = JoinInstruction::New { initial_cluster: "a=b".into() };
    let mut privileged = objects::pod(&member, &PodSettings::default(), &instruction).unwrap();
    privileged.spec.as_mut().unwrap().host_network = Some(true);
    let forbidden = bench.writer.create_pod(&privileged).await;
    assert!(matches!(forbidden, Err(ApiFailure::Forbidden(_))), "{forbidden:?}");
    let mut elsewhere = objects::pvc(&member).unwrap();
    elsewhere.metadata.namespace = Some("no-such-namespace".into());
    assert_eq!(bench.writer.create_pvc(&elsewhere).await, Err(ApiFailure::NotFound));
}

// CL-08
#[tokio::test]
async fn our_finalizer_comes_with_the_member_and_goes_without_taking_another_along() {
    let Some(bench) = Bench::new("finalizers").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let member = bench.member(&cluster).await;
    assert_eq!(member.finalizers(), [labels::MEMBER_FINALIZER]);
    let members: Api<EtcdMember> = bench.api();
    let other = json!({"metadata": {"finalizers": [labels::MEMBER_FINALIZER, "example.com/other"]}});
    members.patch("db-x7k2p", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    let raced = bench.writer.release_member(&member).await;
    assert!(matches!(raced, Err(ApiFailure::Conflict(_))), "{raced:?}");

    let read = members.get("db-x7k2p").await.unwrap();
    assert_eq!(bench.writer.delete_member(&Target::of(&read).unwrap()).await, Ok(Deleted::Requested));
    let leaving = members.get("db-x7k2p").await.unwrap();
    assert!(view::member(&leaving).deleting.is_some());
    bench.writer.release_member(&leaving).await.unwrap();
    let kept = members.get("db-x7k2p").await.unwrap();
    assert_eq!(kept.finalizers(), ["example.com/other"]);
}

// MT-03
#[tokio::test]
async fn a_status_comes_back_as_it_was_written_and_is_not_written_again() {
    let Some(bench) = Bench::new("status").await else { return };
    let cluster = bench.cluster(full()).await;
    let mut status = cluster.status_or_default();
    status.observed = Some(ObservedClusterSpec::from(&cluster.spec));
    status.cluster_id = Some("fffffffffffffffe".into());
    status.ready_members = 3;
    etcd_operator_api::conditions::upsert(
        &mut status.conditions,
        etcd_operator_api::conditions::AVAILABLE,
        etcd_operator_api::conditions::Status::True,
        Reason::QuorumHealthy,
        "all 3 voters serve",
        cluster.metadata.generation,
        &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            k8s_openapi::jiff::Timestamp::from_second(1_767_225_600).unwrap(),
        ),
    );
    let change = patch::diff_of(cluster.status.as_ref(), &status).unwrap().unwrap();
    let target = Target::of(&cluster).unwrap();
    let written = bench.writer.patch_cluster_status(&target, change).await.unwrap();
    assert_eq!(patch::diff_of(written.status.as_ref(), &status).unwrap(), None);
    let seen = view::cluster(&written);
    let recorded = seen.recorded.target.unwrap();
    assert_eq!((recorded.replicas, recorded.template), (seen.replicas, seen.template));
    // What is gone is taken away, not left behind.
    let mut less = written.status_or_default();
    less.progress_deadline = None;
    less.conditions.clear();
    let change = patch::diff_of(written.status.as_ref(), &less).unwrap().unwrap();
    let target = Target::of(&written).unwrap();
    let written = bench.writer.patch_cluster_status(&target, change).await.unwrap();
    assert_eq!(written.status_or_default().conditions, []);
}

// AP-06
#[tokio::test]
async fn the_lease_passes_from_hand_to_hand() {
    let Some(bench) = Bench::new("lease").await else { return };
    let settings = |identity: &str| LeaseSettings {
        namespace: bench.namespace.clone(),
        name: etcd_operator_kubernetes::shards::LEASE.into(),
        identity: identity.into(),
    };
    let first = LeaseLoop::start(bench.server.client(), settings("a"));
    let held = timeout(SOON, first.acquired()).await.unwrap();
    let second = LeaseLoop::start(bench.server.client(), settings("b"));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(held.valid_for(Duration::from_secs(10)) && second.ownership().is_none(), "it was renewed");
    first.release().await.unwrap();
    assert!(!held.valid_for(Duration::ZERO));
    let taken = timeout(SOON, second.acquired()).await.unwrap();
    assert!(taken.valid_for(Duration::from_secs(10)));
}

#[tokio::test]
async fn the_stores_show_what_happens_and_wake_whom_it_concerns() {
    let Some(bench) = Bench::new("stores").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let uid: Uid = cluster.uid().unwrap().into();
    let stores = Stores::start(bench.client.clone(), std::slice::from_ref(&bench.namespace));
    timeout(SOON, stores.ready()).await.unwrap();
    assert_eq!(stores.cluster_by_uid(&uid).map(|c| c.name_any()).as_deref(), Some("db"));
    stores.feed().next().await;

    let member = bench.member(&cluster).await;
    let pod = bench.pod(&member).await;
    let mut told = Vec::new();
    while ![Kind::Member, Kind::Pod].iter().all(|kind| told.iter().any(|t: &Touched| t.kind == *kind)) {
        let news = timeout(SOON, stores.feed().next()).await;
        told.extend(news.unwrap_or_else(|_| panic!("the member or its Pod was not told: {told:?}")));
    }
    assert!(told.iter().all(|t| t.cluster.as_deref() == Some("db")), "{told:?}");
    assert!(told.iter().any(|t| t.kind == Kind::Member && t.owner_uid.as_ref() == Some(&uid)));
    assert_eq!(stores.members_of(&uid).len(), 1);
    assert!(stores.pod(&bench.namespace, "db-x7k2p").is_some());

    // A stripped label makes the watch lose sight of the Pod; the API server still has it.
    let strip = json!({"metadata": {"labels": {labels::MANAGED_BY: null}}});
    bench.writer.patch_pod(&Target::of(&pod).unwrap(), strip).await.unwrap();
    while stores.pod(&bench.namespace, "db-x7k2p").is_some() {
        let news = timeout(SOON, stores.feed().next()).await;
        assert!(news.is_ok(), "the loss was not told");
    }
    let reader = Reader::new(bench.client.clone());
    assert!(reader.get_pod(&bench.namespace, "db-x7k2p").await.unwrap().is_some());
    assert_eq!(reader.list_members(&bench.namespace, &uid).await.unwrap().len(), 1);
    assert_eq!(reader.list_members(&bench.namespace, &"another".into()).await.unwrap().len(), 0);
}

#[tokio::test]
async fn an_event_is_accepted_and_found_at_its_object() {
    let Some(bench) = Bench::new("events").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let events = Events::start(bench.client.clone(), "instance".into());
    events.tell(&cluster, Reason::SeedCreated, "created EtcdMember db-x7k2p");
    events.tell(&cluster, Reason::SeedCreated, "created EtcdMember db-x7k2p");
    events.tell(&cluster, Reason::PodUnschedulable, "no node");
    let api: Api<Event> = bench.api();
    let found = timeout(SOON, async {
        loop {
            let found = api.list(&Default::default()).await.unwrap().items;
            if found.len() == 2 && found.iter().any(|e| e.series.is_some()) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let found = found.await.unwrap();
    assert!(
        found.iter().all(|e| e.regarding.as_ref().and_then(|r| r.uid.as_deref()) == cluster.uid().as_deref())
    );
    assert_eq!(events.dropped(), 0);
}

#[tokio::test]
async fn times_are_read_as_the_api_server_writes_them() {
    let Some(bench) = Bench::new("times").await else { return };
    let cluster = bench.cluster(json!({"version": "3.6.16"})).await;
    let created = view::member(&bench.member(&cluster).await).created;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = Time(u64::try_from(now.as_millis()).unwrap());
    assert!(now.since(created) < Duration::from_secs(60), "{created:?} {now:?}");
}
