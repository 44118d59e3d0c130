//! A node that is drained, as `kubectl drain` does it, but that only Pods of this run are asked to go. In-process, since a
//! drain that a budget holds up is given up, and what it asked for is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubernetesNode, Pod};
use kube::api::{EvictParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::support::Scene;

/// Between two tries, as kubectl has it.
const AGAIN: Duration = Duration::from_secs(5);

/// The API server answers within milliseconds; longer than this the client waits to ask again.
const ANSWERED: Duration = Duration::from_secs(3);

/// The API server's answer when a budget keeps a Pod.
const KEPT: u16 = 429;
/// And when the Pod is gone.
const GONE: u16 = 404;

/// A node that takes no Pods, and those on it are asked to go until none is left.
pub(crate) struct Drain {
    node: String,
    client: Client,
    task: JoinHandle<Result<(), String>>,
    count: Arc<Count>,
}

#[derive(Default)]
struct Count {
    evicted: AtomicUsize,
    refused: AtomicUsize,
}

impl Drain {
    /// Cordons the node, and begins.
    ///
    /// # Errors
    /// It is not cordoned.
    pub(crate) async fn begin(scene: &Scene, node: String) -> Result<Self, String> {
        let client = scene.testbed.client();
        let nodes: Api<KubernetesNode> = Api::all(client.clone());
        nodes.cordon(&node).await.map_err(|e| format!("cordoning {node}: {e}"))?;
        let count = Arc::<Count>::default();
        let task = tokio::spawn(empty(scene.api(), node.clone(), count.clone()));
        Ok(Self { node, client, task, count })
    }

    /// Gives it up if it has not come to its end, and uncordons the node. Returns how far it came.
    ///
    /// # Errors
    /// An eviction was answered in another way than with yes, not now, or nobody there; or the node is not uncordoned.
    pub(crate) async fn end(self) -> Result<String, String> {
        let node = self.node;
        let finished = self.task.is_finished();
        self.task.abort();
        if finished {
            self.task.await.map_err(|e| e.to_string())??;
        }
        let nodes: Api<KubernetesNode> = Api::all(self.client);
        nodes.uncordon(&node).await.map_err(|e| format!("uncordoning {node}: {e}"))?;
        let (evicted, refused) =
            (self.count.evicted.load(Ordering::Relaxed), self.count.refused.load(Ordering::Relaxed));
        let end = if finished { "came to its end" } else { "was given up" };
        Ok(format!("the drain of {node} {end}: {evicted} evicted, {refused} times not now"))
    }
}

/// What became of a Pod that was asked to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It goes, or was gone.
    Yes,
    /// A budget keeps it for now.
    NotNow,
}

/// Asks a Pod to go, once.
///
/// # Errors
/// Another answer than yes, not now, or nobody there.
pub(crate) async fn evict(pods: &Api<Pod>, name: &str) -> Result<Answer, String> {
    // The client itself asks again and again after a 429, ten seconds later each time.
    match timeout(ANSWERED, pods.evict(name, &EvictParams::default())).await {
        Err(_) => Ok(Answer::NotNow),
        Ok(Err(kube::Error::Api(e))) if e.code == KEPT => Ok(Answer::NotNow),
        Ok(Err(kube::Error::Api(e))) if e.code == GONE => Ok(Answer::Yes),
        Ok(Err(error)) => Err(format!("evicting {name}: {error}")),
        Ok(Ok(_)) => Ok(Answer::Yes),
    }
}

async fn empty(pods: Api<Pod>, node: String, count: Arc<Count>) -> Result<(), String> {
    let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
    loop {
        let left = pods.list(&there).await.map_err(|e| e.to_string())?.items;
        if left.is_empty() {
            return Ok(());
        }
        let staying = left.iter().filter(|p| p.metadata.deletion_timestamp.is_none());
        // All at once: one that is kept holds up nobody else.
        let asked = staying.map(async |pod| evict(&pods, &pod.name_any()).await);
        for answer in futures::future::join_all(asked).await {
            let kind = if answer? == Answer::Yes { &count.evicted } else { &count.refused };
            kind.fetch_add(1, Ordering::Relaxed);
        }
        sleep(AGAIN).await;
    }
}
