//! The three clusters with their clients and operators, and what must be true of them whenever nothing is broken.

use std::time::Duration;

use etcd_operator_api::EtcdMember;
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::operators::Operators;
use crate::plan::CLUSTERS;
use crate::spec::Spec;
use crate::support::converged::check;
use crate::support::{Scene, etcd, reached, spec, trace};

/// Five members that come and go one by one, Pods whose kubelet starts them again after longer and longer pauses,
/// and a machine that has other things to do: whatever is not whole after this long does not become so by itself.
const HEALED_WITHIN: Duration = Duration::from_secs(420);
/// For so long everything must be right: it takes a moment until what was done shows.
const STEADY: Duration = Duration::from_secs(6);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(700);
/// Until the members hold the same data, when all of them serve.
const SAME_DATA: Duration = Duration::from_secs(30);

/// All of it.
pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) operators: Operators,
    pub(crate) clients: Vec<Client>,
    /// What the spec of each cluster should say when what has begun is over.
    pub(crate) wanted: [Spec; 3],
    cluster_ids: Vec<Option<String>>,
    /// How much of the operators' log was looked through.
    read: usize,
}

impl World {
    /// Three clusters of these specs, with a client each.
    ///
    /// # Errors
    /// They do not form.
    pub(crate) async fn form(wanted: [Spec; 3]) -> Result<Self, String> {
        let mut scene = Scene::without_operator("chaos").await;
        let operators = Operators::start(&mut scene).await;
        for (cluster, wanted) in CLUSTERS.into_iter().zip(&wanted) {
            let version = wanted.version().to_owned();
            let cluster = spec::cluster_with(cluster, wanted.replicas, |spec| spec.version = version);
            scene.create(&cluster).await;
        }
        let mut world =
            Self { scene, operators, clients: Vec::new(), wanted, cluster_ids: Vec::new(), read: 0 };
        world.heal().await?;
        for cluster in CLUSTERS {
            world.cluster_ids.push(world.scene.get(cluster).await.status_or_default().cluster_id);
            world.clients.push(Client::start(&world.scene, cluster));
        }
        Ok(world)
    }

    /// Lets this much time pass, while whoever ends is started again.
    ///
    /// # Errors
    /// An operator ended for no reason that is known here.
    pub(crate) async fn pass(&mut self, time: Duration) -> Result<(), String> {
        tokio::select! {
            error = self.operators.tend() => Err(error),
            () = sleep(time) => Ok(()),
        }
    }

    /// Waits until all clusters are as they should be and everything is right, and returns how long that took.
    ///
    /// # Errors
    /// What is not right.
    pub(crate) async fn heal(&mut self) -> Result<Duration, String> {
        let Self { scene, operators, wanted, .. } = self;
        tokio::select! {
            error = operators.tend() => Err(error),
            healed = healed(scene, wanted) => healed,
        }
    }

    /// Checks what must be true whenever nothing is broken, beyond what [`World::heal`] has waited for.
    ///
    /// # Errors
    /// The first thing that is not.
    pub(crate) async fn check(&mut self) -> Result<(), String> {
        for (cluster, id) in CLUSTERS.into_iter().zip(&self.cluster_ids) {
            let now = self.scene.get(cluster).await.status_or_default().cluster_id;
            if now != *id {
                return Err(format!("{cluster} had the cluster ID {id:?} and has {now:?}"));
            }
        }
        for client in &self.clients {
            client.check(&self.scene).await?;
        }
        self.same_data().await?;
        let log = self.scene.operator_log();
        let fresh = log.get(self.read..).unwrap_or(&log);
        let fault = fresh.lines().find(|l| l.contains("OperatorFault") || l.contains("panicked"));
        if let Some(fault) = fault {
            return Err(format!("a part of the operator failed: {fault}"));
        }
        self.read = log.len();
        Ok(())
    }

    /// Checks that every membership change was sent by an operator, once, and that none crossed another. Returns how
    /// many there were, by cluster and kind.
    ///
    /// # Errors
    /// The change that does not match.
    pub(crate) fn trace(&self) -> Result<Vec<(&'static str, trace::Counts)>, String> {
        let check = |cluster| match trace::check_cluster(&self.scene, cluster, &[]) {
            Ok(counts) => Ok((cluster, counts)),
            Err(error) => Err(format!("{cluster}: {error}")),
        };
        CLUSTERS.into_iter().map(check).collect()
    }

    /// Stops the clients, and checks that nothing acknowledged is missing.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) async fn finish(&mut self) -> Result<(), String> {
        for client in &mut self.clients {
            client.finish(&self.scene).await?;
        }
        self.same_data().await
    }

    async fn same_data(&self) -> Result<(), String> {
        for cluster in CLUSTERS {
            let what = format!("the same data on every member of {cluster}");
            eventually(&what, SAME_DATA, async || etcd::same_data_everywhere(&self.scene, cluster).await)
                .await
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// The time from now to the first of several looks in a row that find everything right.
async fn healed(scene: &Scene, wanted: &[Spec; 3]) -> Result<Duration, String> {
    let begin = Instant::now();
    let mut right_since = None;
    loop {
        let looked = Instant::now();
        match look(scene, wanted).await {
            Ok(()) => {
                let since = *right_since.get_or_insert(looked);
                if since.elapsed() >= STEADY {
                    return Ok(since - begin);
                }
            }
            Err(error) if begin.elapsed() > HEALED_WITHIN => {
                return Err(format!("not within {} s: {error}", HEALED_WITHIN.as_secs()));
            }
            Err(_) => right_since = None,
        }
        sleep(LOOK).await;
    }
}

/// Whether the spec is what the edits have made of it: nobody else writes it.
async fn says(scene: &Scene, cluster: &str, wanted: &Spec) -> Result<(), String> {
    let spec = serde_json::to_value(scene.get(cluster).await.spec).map_err(|e| e.to_string())?;
    for (key, value) in wanted.wanted().as_object().into_iter().flatten() {
        if !is_part(value, &spec[key]) {
            return Err(format!("spec.{key} should say {value}, and says {}", spec[key]));
        }
    }
    Ok(())
}

/// Whether everything in `part` is in `whole`; what is null in one is not there in the other.
fn is_part(part: &Value, whole: &Value) -> bool {
    match part.as_object() {
        Some(part) => part.iter().all(|(key, value)| is_part(value, &whole[key])),
        None => part == whole,
    }
}

/// Everything at once, now.
async fn look(scene: &Scene, wanted: &[Spec; 3]) -> Result<(), String> {
    let looks = CLUSTERS.into_iter().zip(wanted).map(async |(cluster, wanted)| {
        let size = usize::try_from(wanted.replicas).unwrap_or_default();
        let looks = async {
            says(scene, cluster, wanted).await?;
            check(scene, cluster, size).await?;
            reached::check(scene, cluster, !wanted.waits).await
        };
        looks.await.map_err(|e| format!("{cluster}: {e}"))
    });
    futures::future::try_join_all(looks).await?;
    // Nobody who is on the way out, and nobody without an owner.
    let all = ListParams::default();
    let members = scene.api::<EtcdMember>().list(&all).await.map_err(|e| e.to_string())?;
    let pods = scene.api::<Pod>().list(&all).await.map_err(|e| e.to_string())?;
    let leaving = members.iter().filter(|m| m.metadata.deletion_timestamp.is_some()).map(|m| m.name_any());
    let ending = pods.iter().filter(|p| p.metadata.deletion_timestamp.is_some()).map(|p| p.name_any());
    let going: Vec<String> = leaving.chain(ending).collect();
    if !going.is_empty() {
        return Err(format!("on the way out: {going:?}"));
    }
    let total = usize::try_from(wanted.iter().map(|w| w.replicas).sum::<i32>()).unwrap_or_default();
    let count = scene.count().await;
    let right = [total, total, total, 2 * CLUSTERS.len()];
    if count == right {
        Ok(())
    } else {
        Err(format!("members, Pods, PVCs, Services: {count:?}, not {right:?}"))
    }
}
