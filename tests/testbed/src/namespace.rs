//! A namespace for one test: fresh at its start, gone at its end, and kept with a copy of all it
//! holds when the test failed.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, PersistentVolumeClaim, Pod};
use kube::api::{
    DeleteParams, DynamicObject, ListParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::error::{Context, Error, Result};
use crate::eventually::{eventually, object};
use crate::testbed::Testbed;

/// A namespace that still exists after this long holds something that nobody lets go.
const GONE_LIMIT: Duration = Duration::from_secs(60);
/// Pods end within 1 s, their claims right after.
const EMPTY_LIMIT: Duration = Duration::from_secs(15);
/// The default service account is there a moment after the namespace is.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// The group whose finalizers are removed at the end: their operator may be gone by then.
const OPERATOR_GROUP: &str = "etcd-operator.cozystack.io";

static MADE: AtomicU32 = AtomicU32::new(0);

/// A namespace of one test.
///
/// Call [`finish`](Namespace::finish) at the end. If it is dropped without, it is deleted all the
/// same, unless the thread panics: then the namespace stays, and its objects and Pod logs are written
/// to the folder that is printed.
#[derive(Debug)]
pub struct Namespace {
    testbed: Testbed,
    name: String,
    open: bool,
}

impl Namespace {
    /// Makes a namespace whose name begins with `prefix`, and waits until Pods can be made in it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn fresh(testbed: &Testbed, prefix: &str) -> Result<Self> {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("reading the clock")?;
        let count = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{:x}-{:x}-{count}", time.as_secs() & 0xff_ffff, std::process::id());
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let object_ = KubeNamespace { metadata, ..KubeNamespace::default() };
        let api = Api::<KubeNamespace>::all(testbed.client());
        api.create(&PostParams::default(), &object_)
            .await
            .context(format_args!("making namespace {name}"))?;
        let namespace = Namespace { testbed: testbed.clone(), name, open: true };
        let accounts = namespace.api::<k8s_openapi::api::core::v1::ServiceAccount>();
        object(accounts, "default", "the default service account", READY_LIMIT, |account| {
            account.map(drop).ok_or_else(|| "none".to_owned())
        })
        .await?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Objects of a kind in this namespace, as the administrator.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.testbed.client(), &self.name)
    }

    /// Deletes it with all it holds, and waits until its Pods and claims are gone. Finalizers of the
    /// operator's kinds are removed, since the operator may not run any more: a test that is about them
    /// looks first.
    ///
    /// # Errors
    /// When they are not gone after 75 s; the text says what is left.
    pub async fn finish(mut self) -> Result<()> {
        self.open = false;
        delete(&self.testbed.client(), &self.name).await
    }

    /// Writes its objects (Secrets without their data) and the logs of its Pods to a folder that
    /// outlives the testbed, and returns that folder.
    ///
    /// # Errors
    /// When the API server cannot be asked or the folder cannot be written.
    pub async fn dump(&self) -> Result<std::path::PathBuf> {
        let folder = self.testbed.keep(&self.name)?;
        dump(&self.testbed.client(), &self.name, &folder).await?;
        Ok(folder)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let failed = std::thread::panicking();
        let (testbed, name) = (self.testbed.clone(), self.name.clone());
        // A client works only in the runtime that made it, and this one's is blocked by us.
        let work = std::thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.context("starting a runtime")?.block_on(async {
                let client = crate::testbed::client(&testbed.kubeconfig()).await?;
                if failed {
                    let folder = testbed.keep(&name)?;
                    dump(&client, &name, &folder).await?;
                    report(&format!(
                        "namespace {name} is kept; its objects and logs are in {}",
                        folder.display()
                    ));
                    Ok(())
                } else {
                    delete(&client, &name).await
                }
            })
        });
        let result = work.join().unwrap_or_else(|_| Err(Error::new("the clean-up panicked")));
        if let Err(error) = result {
            report(&format!("namespace {}: {error}", self.name));
        }
    }
}

/// Beside the panic's own message, where the reader of a failed test looks.
#[expect(clippy::print_stderr, reason = "a test's output is for people")]
fn report(text: &str) {
    eprintln!("{text}");
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    // Kubernetes looks at a deleted namespace after 5 s, and again after 8 to 16 s if it still held Pods
    // or claims (pkg/controller/namespace). So it is emptied here, and then there is nothing to wait for.
    let emptied = eventually("empty", EMPTY_LIMIT, async || empty(client, name).await).await;
    let namespaces = Api::<KubeNamespace>::all(client.clone());
    match namespaces.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(e)) if e.code == 404 => return Ok(()),
        done => done.map(drop).context(format_args!("deleting namespace {name}"))?,
    }
    if emptied.is_ok() {
        return Ok(());
    }
    let what = format!("namespace {name} gone");
    eventually(&what, GONE_LIMIT, async || {
        release(client, name).await.map_err(|e| e.to_string())?;
        match namespaces.get_opt(name).await.map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(namespace) => {
                let conditions = namespace.status.and_then(|s| s.conditions).unwrap_or_default();
                let held = conditions.into_iter().filter(|c| c.status == "True");
                Err(held.filter_map(|c| c.message).collect::<Vec<_>>().join("; "))
            }
        }
    })
    .await
}

/// Deletes what holds a namespace up, owners first; an error says what is still there.
async fn empty(client: &Client, name: &str) -> std::result::Result<(), String> {
    release(client, name).await.map_err(|e| e.to_string())?;
    // A shell as process 1 ignores SIGTERM; nobody needs its last 30 s.
    let quickly = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::background() };
    let left = [
        clear::<Deployment>(client, name, &quickly).await?,
        clear::<Pod>(client, name, &quickly).await?,
        clear::<PersistentVolumeClaim>(client, name, &quickly).await?,
    ];
    if left == [0, 0, 0] {
        return Ok(());
    }
    Err(format!("{} Deployments, {} Pods, {} PersistentVolumeClaims", left[0], left[1], left[2]))
}

/// Deletes what is not being deleted yet, and says how many there were.
async fn clear<K>(client: &Client, namespace: &str, how: &DeleteParams) -> std::result::Result<usize, String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?.items;
    if found.iter().any(|object| object.meta().deletion_timestamp.is_none()) {
        api.delete_collection(how, &ListParams::default()).await.map_err(|e| e.to_string())?;
    }
    Ok(found.len())
}

/// Deletes everything in the operator's group and removes its finalizers.
async fn release(client: &Client, namespace: &str) -> Result<()> {
    let discovery = Discovery::new(client.clone()).filter(&[OPERATOR_GROUP]).run_aggregated().await;
    let discovery = discovery.context("asking for the operator's kinds")?;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.scope != Scope::Namespaced || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
            for object in api.list(&ListParams::default()).await.context("listing")?.items {
                if object.metadata.deletion_timestamp.is_none() {
                    match api.delete(&object.name_any(), &DeleteParams::background()).await {
                        Err(kube::Error::Api(e)) if e.code == 404 => continue,
                        done => done.map(drop).context(format_args!("deleting {}", object.name_any()))?,
                    }
                }
                if object.finalizers().is_empty() {
                    continue;
                }
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                match api.patch(&object.name_any(), &PatchParams::default(), &patch).await {
                    Err(kube::Error::Api(e)) if e.code == 404 => {}
                    done => done.map(drop).context("removing a finalizer")?,
                }
            }
        }
    }
    Ok(())
}

async fn dump(client: &Client, namespace: &str, folder: &Path) -> Result<()> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await.context("asking for all kinds")?;
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.scope != Scope::Namespaced || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
            let Ok(mut list) = api.list(&ListParams::default()).await else { continue };
            if list.items.is_empty() {
                continue;
            }
            for object in &mut list.items {
                object.metadata.managed_fields = None;
                if resource.kind == "Secret" {
                    for field in ["data", "stringData"] {
                        object.data.as_object_mut().map(|o| o.remove(field));
                    }
                }
            }
            let text = serde_yaml_ng::to_string(&list.items).context("writing YAML")?;
            store(folder, &format!("{}.yaml", resource.plural), &text)?;
        }
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    for pod in pods.list(&ListParams::default()).await.context("listing Pods")? {
        let name = pod.name_any();
        let spec = pod.spec.unwrap_or_default();
        for container in spec.init_containers.unwrap_or_default().into_iter().chain(spec.containers) {
            for previous in [true, false] {
                let life = if previous { "-previous" } else { "" };
                let params =
                    LogParams { container: Some(container.name.clone()), previous, ..LogParams::default() };
                // A container that never ran has no log.
                if let Ok(text) = pods.logs(&name, &params).await {
                    store(folder, &format!("{name}-{}{life}.log", container.name), &text)?;
                }
            }
        }
    }
    Ok(())
}

fn store(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).context(format_args!("writing {}", path.display()))
}
