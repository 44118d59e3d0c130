//! Blows that destroy a member's data. None falls where it would leave no majority of the data.

use std::time::Duration;

use etcd_operator_api::{EtcdMember, names};
use etcd_operator_testbed::eventually;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;

use crate::blows::Who;
use crate::faults::{Outcome, choose, delete, named, pods};
use crate::figures::say;
use crate::plan::CLUSTERS;
use crate::support::{Scene, data, etcd, frozen};

/// Until a volume that is deleted with its Pod is gone.
const VOLUME_GONE: Duration = Duration::from_secs(90);

/// Members of a cluster that bears the loss of one.
const ENOUGH: usize = 3;

/// Deletes everything in the data directory of a member, and ends its process.
pub(crate) async fn wipe(scene: &Scene, cluster: &str, who: Who) -> Outcome {
    let Some((pod, role)) = victim(scene, cluster, who).await else { return Outcome::Nothing };
    let name = pod.name_any();
    if frozen::of(std::slice::from_ref(&name)).len() != 1 {
        return Outcome::Nothing;
    }
    say(&format!("data directory of {role}{} wiped", named(&pod)));
    data::wipe(&name);
    Outcome::Done
}

/// Deletes the volume of a member whose Pod goes on.
pub(crate) async fn delete_volume(scene: &Scene, cluster: &str, who: Who) -> Result<Outcome, String> {
    let Some((pod, role)) = victim(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
    say(&format!("volume of {role}{} deleted under its Pod", named(&pod)));
    delete::<PersistentVolumeClaim>(scene, &names::pvc(&pod.name_any())).await?;
    Ok(Outcome::Done)
}

/// Deletes the volume and the Pod of a member, and when they are gone its EtcdMember.
pub(crate) async fn lose(scene: &Scene, cluster: &str, who: Who) -> Result<Outcome, String> {
    let Some((pod, role)) = victim(scene, cluster, who).await else { return Ok(Outcome::Nothing) };
    let (name, volume) = (pod.name_any(), names::pvc(&pod.name_any()));
    say(&format!("volume and Pod of {role}{} deleted, then its EtcdMember", named(&pod)));
    delete::<PersistentVolumeClaim>(scene, &volume).await?;
    delete::<Pod>(scene, &name).await?;
    let what = format!("PVC {volume} gone");
    eventually(&what, VOLUME_GONE, async || {
        let found = scene.api::<PersistentVolumeClaim>().get_opt(&volume).await;
        if found.map_err(|e| e.to_string())?.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await
    .map_err(|e| e.to_string())?;
    delete::<EtcdMember>(scene, &name).await?;
    Ok(Outcome::Done)
}

/// Who is hit: somebody of this cluster, or a seed, which another one may have. None where the loss would not be borne.
async fn victim(scene: &Scene, cluster: &str, who: Who) -> Option<(Pod, &'static str)> {
    if who == Who::Seed {
        let others = CLUSTERS.into_iter().filter(|other| *other != cluster);
        for cluster in std::iter::once(cluster).chain(others) {
            if let Some(seed) = seed(scene, cluster).await
                && bears_a_loss(scene, cluster).await
            {
                return Some((seed, "the seed "));
            }
        }
        return None;
    }
    if bears_a_loss(scene, cluster).await { choose(scene, cluster, who).await } else { None }
}

/// The Pod of the member that formed this cluster, if that is still a member.
async fn seed(scene: &Scene, cluster: &str) -> Option<Pod> {
    let members = scene.members().await;
    let seed = members.iter().find(|m| m.spec.bootstrap && m.spec.cluster_name == cluster)?.name_any();
    pods(scene, cluster).await.into_iter().find(|p| p.name_any() == seed)
}

/// Whether this cluster has as many voters as it should, three or more, and each of them serves.
async fn bears_a_loss(scene: &Scene, cluster: &str) -> bool {
    let Ok(list) = etcd::list(scene, cluster).await else { return false };
    let (voters, learners) = list.counts();
    let wanted = usize::try_from(scene.get(cluster).await.spec.replicas).unwrap_or_default();
    let endpoints = etcd::endpoints(scene, cluster, true).await;
    if voters < ENOUGH || (voters, voters, learners) != (wanted, endpoints.len(), 0) {
        return false;
    }
    for endpoint in endpoints.values() {
        if etcd::status(scene, endpoint).await.is_err() {
            return false;
        }
    }
    true
}
