//! The CRDs on a real API server: it takes them, it accepts and refuses what the cases in `src/api/testdata` say, and
//! it gives back every field. The client-side test of the API crate proves the same list without a server.
//!
//! Needs a Kubernetes that `KUBECONFIG` points to, and may create CRDs and namespaces in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at its first surprise; clippy knows that only of the #[test] functions themselves"
)]

#[path = "../src/api/testdata/cases.rs"]
mod cases;

use std::time::Duration;

use cases::{Case, cases, golden};
use etcd_operator_api::{GROUP, crds, labels};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

/// A client of a Kubernetes that answers, and has our CRDs.
async fn kubernetes() -> Client {
    // The first test to get here sets the provider; the others find it set.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let how =
        "run this as `testbed exec -- cargo test --test testbed_crds`, or point KUBECONFIG to a test cluster";
    let client =
        Client::try_default().await.unwrap_or_else(|e| panic!("no Kubernetes is configured ({e}): {how}"));
    match tokio::time::timeout(Duration::from_secs(10), client.apiserver_version()).await {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => panic!("no API server answers ({e}): {how}"),
        Err(_) => panic!("no API server answers within 10 s: {how}"),
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds().unwrap() {
        let name = crd.name_any();
        let apply = PatchParams::apply("testbed-crds").force();
        api.patch(&name, &apply, &Patch::Apply(&crd))
            .await
            .unwrap_or_else(|e| panic!("{name} is refused: {e}"));
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(30), established)
            .await
            .unwrap_or_else(|_| panic!("{name} is not established within 30 s"))
            .unwrap();
    }
    client
}

/// A namespace of its own, deleted by [`Scratch::done`].
struct Scratch {
    client: Client,
    namespace: String,
}

impl Scratch {
    async fn new(client: Client, purpose: &str) -> Self {
        let object = json!({ "metadata": { "generateName": format!("crds-{purpose}-") } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = namespaces
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap()
            .name_any();
        Self { client, namespace }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: GROUP.into(),
            version: "v1alpha2".into(),
            api_version: etcd_operator_api::API_VERSION.into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn done(self) {
        let namespaces: Api<Namespace> = Api::all(self.client);
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
    }
}

fn dynamic(object: Value) -> DynamicObject {
    serde_json::from_value(object).unwrap()
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn answer(result: Result<DynamicObject, kube::Error>) -> Result<Value, String> {
    match result {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(other) => panic!("the API server did not answer: {other}"),
    }
}

/// Sends a case. A stored object carries the annotation that keeps an operator from acting on it.
async fn send(scratch: &Scratch, number: usize, case: &Case) -> Result<Value, String> {
    let api = scratch.api(case.kind);
    let name = if case.name == "db" { format!("case-{number}") } else { case.name.clone() };
    let object = |spec: &Value| {
        let mut object = case.object(spec);
        object["metadata"]["name"] = json!(name);
        object["metadata"]["annotations"] = json!({ labels::RECONCILE_PAUSED: "true" });
        object
    };
    let Some(was) = &case.was else {
        return answer(api.create(&dry_run(), &dynamic(object(&case.spec))).await);
    };
    let stored = api
        .create(&PostParams::default(), &dynamic(object(was)))
        .await
        .unwrap_or_else(|e| panic!("{}: its start is refused: {e}", case.case));
    let mut update = object(&case.spec);
    update["metadata"]["resourceVersion"] = json!(stored.resource_version());
    let answered = answer(api.replace(&name, &dry_run(), &dynamic(update)).await);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    answered
}

// VC-02, VC-03, VC-04 and the rest of the list.
#[tokio::test]
async fn every_case_ends_as_it_says() {
    let scratch = Scratch::new(kubernetes().await, "cases").await;
    let mut wrong = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        wrong.extend(case.check(&send(&scratch, number, case).await));
    }
    scratch.done().await;
    assert!(wrong.is_empty(), "{} cases went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

// VC-06
#[tokio::test]
async fn the_api_server_finds_nothing_to_complain_about_in_the_crds() {
    let client = kubernetes().await;
    let api: Api<CustomResourceDefinition> = Api::all(client);
    for crd in crds().unwrap() {
        let stored = api.get(&crd.name_any()).await.unwrap();
        let found = stored.status.and_then(|s| s.conditions).unwrap_or_default();
        let is = |kind: &str| found.iter().any(|c| c.type_ == kind && c.status == "True");
        assert!(is("Established") && is("NamesAccepted"), "{}: {found:?}", crd.name_any());
        assert!(!is("NonStructuralSchema"), "{}: {found:?}", crd.name_any());
    }
}

// RB-05: client-side apply stores a second copy of the whole definition in an annotation.
#[tokio::test]
async fn the_crds_fit_into_the_annotation_of_client_side_apply() {
    let client = kubernetes().await;
    let api: Api<CustomResourceDefinition> = Api::all(client);
    for crd in crds().unwrap() {
        let copy = serde_json::to_string(&crd).unwrap();
        let annotation = json!({ "kubectl.kubernetes.io/last-applied-configuration": copy });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotation } }));
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let name = crd.name_any();
        api.patch(&name, &dry_run, &patch).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

// VC-06: what `kubectl explain` reads.
#[tokio::test]
async fn every_kind_is_described_in_the_servers_openapi() {
    let client = kubernetes().await;
    let mut missing = Vec::new();
    // The API server publishes a new CRD's schema a moment after the CRD is established.
    for _ in 0..60 {
        let document = kube::core::Request::new(format!("/openapi/v3/apis/{GROUP}"))
            .get("v1alpha2", &kube::api::GetParams::default())
            .unwrap();
        let text = client.request_text(document).await.unwrap_or_default();
        missing = ["EtcdCluster", "EtcdMember", "EtcdSnapshot", "EtcdDefrag"]
            .into_iter()
            .filter(|kind| !text.contains(&format!("io.cozystack.etcd-operator.v1alpha2.{kind}")))
            .collect();
        if missing.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("not described within 30 s: {missing:?}");
}

// VC-06
#[tokio::test]
async fn an_object_with_every_field_comes_back_as_it_was_sent() {
    let scratch = Scratch::new(kubernetes().await, "golden").await;
    let mut wrong = Vec::new();
    for object in golden() {
        let kind = object["kind"].as_str().unwrap();
        let api = scratch.api(kind);
        let mut sent = object.clone();
        sent["metadata"]["annotations"] = json!({ labels::RECONCILE_PAUSED: "true" });
        let name = api.create(&PostParams::default(), &dynamic(sent)).await.unwrap().name_any();
        let status = Patch::Merge(json!({ "status": object["status"] }));
        api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        let back = serde_json::to_value(api.get(&name).await.unwrap()).unwrap();
        for part in ["spec", "status"] {
            if back[part] != object[part] {
                wrong.push(format!("{kind}.{part}: sent {}, got {}", object[part], back[part]));
            }
        }
        let expected = match kind {
            "EtcdCluster" => Some((5, 5)),
            "EtcdMember" => Some((1, 1)),
            _ => None,
        };
        if let Some((wanted, actual)) = expected {
            let scale = api.get_scale(&name).await.unwrap();
            let status = scale.status.unwrap_or_default();
            let found = (scale.spec.unwrap_or_default().replicas.unwrap_or_default(), status.replicas);
            if found != (wanted, actual)
                || status.selector.as_deref() != object["status"]["selector"].as_str()
            {
                wrong.push(format!("{kind}: /scale says {found:?} and {:?}", status.selector));
            }
        }
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    scratch.done().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_examples_are_accepted() {
    let scratch = Scratch::new(kubernetes().await, "examples").await;
    for example in etcd_operator_api::examples::all().unwrap() {
        let api = scratch.api(example.manifest["kind"].as_str().unwrap());
        let sent = dynamic(example.manifest.clone());
        api.create(&dry_run(), &sent)
            .await
            .unwrap_or_else(|e| panic!("deploy/examples/{}: {e}", example.file));
    }
    scratch.done().await;
}
