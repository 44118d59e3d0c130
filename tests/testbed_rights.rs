//! The rights of the shipped operator: enough for all that it does, and none to spare.
//!
//! Run as `make image && testbed exec -- cargo test --features failpoints --test testbed_rights`. The installed
//! operator watches every namespace, so nothing else may run in the testbed meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdDefrag, EtcdSnapshot, examples};
use etcd_operator_testbed::{Mark, Testbed, eventually, object};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use support::Scene;
use support::converged::converged;

const HOME: &str = "etcd-operator-system";
const NAME: &str = "etcd-operator";
const ACCOUNT: &str = "system:serviceaccount:etcd-operator-system:etcd-operator";
/// Three members take half a minute on a machine that does nothing else.
const LIMIT: Duration = Duration::from_secs(180);

/// Rights that this test does not use, and why they are granted all the same.
const IN_RESERVE: &[(&str, &str)] = &[
    (
        "update etcdclusters/finalizers",
        "never asked for: an admission plugin looks whether it is granted (RB-02)",
    ),
    ("update etcdmembers/finalizers", "the same"),
    ("patch persistentvolumeclaims", "only for a volume of ours whose labels were stripped"),
    ("create pods/eviction", "only when a changed spec restarts a member of three or more"),
    ("patch events", "only when an Event repeats"),
    ("get poddisruptionbudgets", "only when a create says that there is one already, or before a delete"),
    ("delete poddisruptionbudgets", "only when a cluster has no voter left that is wanted"),
    ("get services", "only when a create says that there is one already, or before a repair"),
];

/// The installed operator.
struct Installed {
    client: Client,
    mark: Mark,
}

impl Drop for Installed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It watches every namespace, and the next test has an operator of its own: take its rights away.
            let _ =
                std::process::Command::new("kubectl").args(["delete", "clusterrolebinding", NAME]).status();
        }
    }
}

impl Installed {
    /// Loads the image, applies the manifests as they are, and waits until the Deployment is available.
    async fn new(testbed: &Testbed) -> Self {
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/image/etcd-operator.tar");
        assert!(image.is_file(), "{} is missing: run make image", image.display());
        testbed.load_image(&image).await.unwrap();
        let mark = testbed.audit_log().mark().unwrap();
        testbed.apply(include_str!("../deploy/kustomize/base/operator.yaml")).await.unwrap();
        let installed = Self { client: testbed.client(), mark };
        let deployments: Api<Deployment> = Api::namespaced(installed.client.clone(), HOME);
        let available = |d: Option<&Deployment>| {
            let status = d.and_then(|d| d.status.clone()).unwrap_or_default();
            if status.available_replicas == Some(1) { Ok(()) } else { Err(format!("{status:?}")) }
        };
        object(deployments, NAME, "the operator's Deployment available", LIMIT, available).await.unwrap();
        installed
    }

    /// Deletes everything that was applied, and waits until it is gone.
    async fn remove(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(HOME, &DeleteParams::default()).await.unwrap();
        let gone = |n: Option<&Namespace>| n.map_or(Ok(()), |_| Err("it is still there".to_owned()));
        object(namespaces, HOME, "the operator's namespace gone", LIMIT, gone).await.unwrap();
        let delete = DeleteParams::default();
        Api::<ClusterRoleBinding>::all(self.client.clone()).delete(NAME, &delete).await.unwrap();
        Api::<ClusterRole>::all(self.client.clone()).delete(NAME, &delete).await.unwrap();
    }

    /// "verb resource" of everything that its account may do.
    async fn granted(&self) -> BTreeSet<String> {
        let role = Api::<ClusterRole>::all(self.client.clone()).get(NAME).await.unwrap();
        let home =
            Api::<Role>::namespaced(self.client.clone(), HOME).get("etcd-operator-lease").await.unwrap();
        let rules: Vec<PolicyRule> = role.rules.into_iter().chain(home.rules).flatten().collect();
        let words = |rule: &PolicyRule| -> Vec<String> {
            let resources = rule.resources.clone().unwrap_or_default();
            let each =
                |resource: &String| rule.verbs.iter().map(move |verb| format!("{verb} {resource}")).collect();
            resources.iter().flat_map(|r| -> Vec<String> { each(r) }).collect()
        };
        rules.iter().flat_map(words).collect()
    }
}

fn example<K: k8s_openapi::serde::de::DeserializeOwned>(file: &str) -> K {
    let all = examples::all().unwrap();
    let found = all.into_iter().find(|e| e.file == file).expect("there is such an example");
    serde_json::from_value(found.manifest).unwrap()
}

// RB-01
#[tokio::test]
async fn the_shipped_operator_is_never_forbidden_anything_and_has_no_right_to_spare() {
    let scene = Scene::without_operator("shipped").await;
    let installed = Installed::new(&scene.testbed).await;

    scene.cluster("db", 3).await;
    converged(&scene, "db", 3, LIMIT).await;
    // Everything else that a right is for: an edited Service, kinds that are refused, members that leave.
    let selector = json!({"spec": {"selector": {"app.kubernetes.io/name": "somebody-else"}}});
    scene
        .api::<Service>()
        .patch("db-client", &PatchParams::default(), &Patch::Merge(selector))
        .await
        .unwrap();
    let create = PostParams::default();
    scene.api::<EtcdSnapshot>().create(&create, &example("etcdsnapshot.yaml")).await.unwrap();
    scene.api::<EtcdDefrag>().create(&create, &example("etcddefrag.yaml")).await.unwrap();
    scene.edit("db", json!({"spec": {"replicas": 1}})).await;
    converged(&scene, "db", 1, LIMIT).await;
    scene.api::<EtcdCluster>().delete("db", &DeleteParams::default()).await.unwrap();

    let spare = eventually("every right used", Duration::from_secs(30), async || {
        let requests =
            scene.testbed.audit_log().since(installed.mark).map_err(|e| e.to_string())?.of_user(ACCOUNT);
        let used: BTreeSet<String> = requests.counts().into_keys().collect();
        let reserve: BTreeSet<String> = IN_RESERVE.iter().map(|(right, _)| (*right).to_owned()).collect();
        let spare: Vec<String> = installed
            .granted()
            .await
            .into_iter()
            .filter(|r| !used.contains(r) && !reserve.contains(r))
            .collect();
        if spare.is_empty() { Ok(()) } else { Err(format!("granted and not used: {spare:?}")) }
    });
    let spare = spare.await;
    let requests = scene.testbed.audit_log().since(installed.mark).unwrap().of_user(ACCOUNT);
    assert!(requests.total() > 50, "only {} requests of {ACCOUNT} were recorded", requests.total());
    let forbidden = requests.filter(|r| r.code == 403);
    assert_eq!(forbidden.counts(), BTreeMap::new(), "it was forbidden something");
    spare.unwrap();
    installed.remove().await;
    scene.finish().await;
}
