//! What the tests on the testbed share. A [`Scene`] is one test's namespace with the operator that watches it;
//! the modules look at the cluster from each side: Kubernetes, etcd, a client, and the logs of both.
//!
//! Each test has a namespace and a Lease of its own, so that several run at the same time. Does I/O.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod broken;
pub mod chain;
pub mod converged;
pub mod data;
pub mod etcd;
pub mod follow;
pub mod frozen;
pub mod history;
pub mod identity;
pub mod learners;
pub mod link;
pub mod reached;
pub mod roll;
pub mod spec;
pub mod trace;
pub mod writer;

use std::path::PathBuf;
use std::time::Duration;

use etcd_operator_api::{EtcdCluster, EtcdMember, crds};
use etcd_operator_testbed::{Mark, Namespace, OperatorProcess, Requests, Testbed, object};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use follow::PodLogs;
use history::History;

/// The version that the tests run unless they are about another.
pub const VERSION: &str = "3.6.16";

/// One test's part of the testbed.
pub struct Scene {
    pub testbed: Testbed,
    pub namespace: Namespace,
    /// The operator that watches the namespace, if one was started.
    pub operator: Option<OperatorProcess>,
    /// Logs of every Pod that has run in the namespace.
    pub logs: PodLogs,
    /// Where the operators' Lease is: in the namespace itself, unless a test is about the end of that.
    lease_namespace: Option<String>,
    mark: Mark,
    operator_logs: OperatorLogs,
    /// Whether the API server is to refuse something that the operator asks for, by the test's own doing.
    refusals: bool,
}

impl Scene {
    /// A fresh namespace, and an operator that watches it.
    pub async fn new(prefix: &str) -> Self {
        let mut scene = Self::without_operator(prefix).await;
        scene.start(&[]).await;
        scene
    }

    /// A fresh namespace that nobody watches.
    pub async fn without_operator(prefix: &str) -> Self {
        // The first test to get here sets the provider; the others find it set.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let testbed = Testbed::current().await.unwrap();
        let mark = testbed.audit_log().mark().unwrap();
        apply_crds(&testbed).await;
        let namespace = Namespace::fresh(&testbed, prefix).await.unwrap();
        let logs = PodLogs::start(namespace.api());
        let operator_logs = OperatorLogs {
            testbed: testbed.clone(),
            namespace: namespace.name().to_owned(),
            paths: Vec::new(),
        };
        let (operator, lease_namespace, refusals) = (None, None, false);
        Self { testbed, namespace, operator, logs, lease_namespace, mark, operator_logs, refusals }
    }

    /// Puts the Lease of every operator that is started from now on into this namespace.
    pub fn lease_in(&mut self, namespace: &Namespace) {
        self.lease_namespace = Some(namespace.name().to_owned());
    }

    /// The test sees to it that the API server forbids something; else [`Scene::finish`] takes that for a missing right.
    pub fn expect_refusals(&mut self) {
        self.refusals = true;
    }

    /// Starts the operator of this namespace with these variables.
    pub async fn start(&mut self, env: &[(&str, &str)]) {
        assert!(self.operator.is_none(), "this namespace has an operator");
        self.operator = Some(self.another(env));
    }

    /// One more operator for this namespace, beside the one that there may be.
    pub fn another(&mut self, env: &[(&str, &str)]) -> OperatorProcess {
        let namespace = self.namespace.name();
        let lease_namespace = self.lease_namespace.as_deref().unwrap_or(namespace);
        let args = [
            &*format!("--watch-namespace={namespace}"),
            &*format!("--leader-elect-namespace={lease_namespace}"),
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--log=info,etcd_operator=debug",
        ];
        // A long run uses a copy, which the next build does not replace.
        let binary = std::env::var("ETCD_OPERATOR_BINARY");
        let binary = binary.unwrap_or_else(|_| env!("CARGO_BIN_EXE_etcd-operator").to_owned());
        let operator = OperatorProcess::start(&self.testbed, binary, &args, env).unwrap();
        self.operator_logs.paths.push(operator.log_path().to_owned());
        operator
    }

    /// The operator.
    pub fn operator(&mut self) -> &mut OperatorProcess {
        self.operator.as_mut().expect("no operator was started")
    }

    /// Asks the operator to end, and waits.
    pub async fn stop(&mut self) {
        let status = self.operator.take().expect("no operator was started").stop().await.unwrap();
        assert!(status.success(), "the operator ended with {status} when it was asked to stop");
    }

    /// What every operator of this namespace has logged, oldest operator first.
    pub fn operator_log(&self) -> String {
        self.operator_logs.text()
    }

    /// Objects of a kind in the namespace, as an administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        self.namespace.api()
    }

    /// Requests of operators that concern this namespace, since the test began.
    pub fn requests(&self) -> Requests {
        let name = self.namespace.name();
        let all = self.testbed.audit_log().since(self.mark).unwrap().of_operator();
        all.filter(|r| r.namespace == name)
    }

    /// Creates an EtcdCluster.
    pub async fn create(&self, cluster: &EtcdCluster) -> EtcdCluster {
        self.api::<EtcdCluster>().create(&PostParams::default(), cluster).await.unwrap()
    }

    /// Creates the cluster `name` with this many replicas and the smallest spec.
    pub async fn cluster(&self, name: &str, replicas: i32) -> EtcdCluster {
        self.create(&spec::cluster(name, replicas)).await
    }

    /// Merges `patch` into the EtcdCluster `name`.
    pub async fn edit(&self, name: &str, patch: Value) -> EtcdCluster {
        let patch = Patch::Merge(patch);
        self.api::<EtcdCluster>().patch(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// Sets `spec.replicas`.
    pub async fn scale(&self, name: &str, replicas: i32) -> EtcdCluster {
        self.edit(name, json!({"spec": {"replicas": replicas}})).await
    }

    /// Sets an annotation of the EtcdCluster `name`, or takes it off.
    pub async fn annotate(&self, name: &str, key: &str, value: Option<&str>) -> EtcdCluster {
        self.edit(name, json!({"metadata": {"annotations": {key: value}}})).await
    }

    /// The EtcdCluster as it is now.
    pub async fn get(&self, name: &str) -> EtcdCluster {
        self.api::<EtcdCluster>().get(name).await.unwrap()
    }

    /// The EtcdMembers of the namespace, oldest first.
    pub async fn members(&self) -> Vec<EtcdMember> {
        let mut members = self.api::<EtcdMember>().list(&ListParams::default()).await.unwrap().items;
        members.sort_by_key(|m| (m.creation_timestamp(), m.name_any()));
        members
    }

    /// The Pods of the namespace, by name.
    pub async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.unwrap().items
    }

    /// How many EtcdMembers, Pods, PVCs and Services there are in the namespace.
    pub async fn count(&self) -> [usize; 4] {
        let all = ListParams::default();
        [
            self.api::<EtcdMember>().list(&all).await.unwrap().items.len(),
            self.api::<Pod>().list(&all).await.unwrap().items.len(),
            self.api::<PersistentVolumeClaim>().list(&all).await.unwrap().items.len(),
            self.api::<Service>().list(&all).await.unwrap().items.len(),
        ]
    }

    /// Records every state of the EtcdClusters from now on.
    pub async fn history(&self) -> History<EtcdCluster> {
        History::start(self.api()).await
    }

    /// Ends the operator, checks what must be true of every run, and deletes the namespace.
    pub async fn finish(mut self) {
        if let Some(operator) = &mut self.operator {
            let early = operator.wait(Duration::ZERO).await.ok();
            assert_eq!(early, None, "the operator ended by itself; its log is {:?}", operator.log_path());
            operator.kill().await.unwrap();
        }
        let forbidden = self.requests().filter(|r| r.code == 403);
        assert!(self.refusals || forbidden.total() == 0, "forbidden: {:?}", forbidden.counts());
        let log = self.operator_log();
        let fault = log.lines().find(|l| l.contains("OperatorFault"));
        assert_eq!(fault, None, "a part of the operator failed");
        let Self { namespace, logs, .. } = self;
        drop(logs);
        namespace.finish().await.unwrap();
    }
}

/// The operators' logs of one namespace. Keeps them with the namespace's objects when the test fails.
struct OperatorLogs {
    testbed: Testbed,
    namespace: String,
    paths: Vec<PathBuf>,
}

impl OperatorLogs {
    fn text(&self) -> String {
        self.paths.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

impl Drop for OperatorLogs {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(folder) = self.testbed.keep(&self.namespace)
        {
            // The test has failed already; that is what its output should say.
            let _ = std::fs::write(folder.join("operator.log"), self.text());
        }
    }
}

/// Applies the CRDs. Tests that run at the same time apply the same ones, which changes nothing.
pub async fn apply_crds(testbed: &Testbed) {
    for crd in crds().unwrap() {
        testbed.apply(&serde_json::to_string(&crd).unwrap()).await.unwrap();
    }
}

/// Makes a ResourceQuota that lets in so many Pods, and returns when the API server acts on it.
pub async fn quota(scene: &Scene, pods: usize) -> Api<ResourceQuota> {
    let quotas = scene.api::<ResourceQuota>();
    let quota = json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": pods.to_string()}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    // It counts from the moment at which its controller has counted what is there.
    let counted = |quota: Option<&ResourceQuota>| {
        let used = quota.and_then(|q| q.status.as_ref()?.used.as_ref());
        used.map(drop).ok_or_else(|| "not counted yet".to_owned())
    };
    object(quotas.clone(), QUOTA, "the quota is in force", Duration::from_secs(60), counted).await.unwrap();
    quotas
}

/// The name of [`quota`]'s object.
pub const QUOTA: &str = "full";
