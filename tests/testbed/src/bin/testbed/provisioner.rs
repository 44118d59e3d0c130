//! The StorageClasses `testbed-local` and `testbed-net`: a directory and a `local` PersistentVolume
//! for every claim. A `local` volume honours fsGroup, so a process that is not root can write to it.
//!
//! Acts on watch events only. Deletes a directory only below its own folder and only for a volume
//! that it made and whose claim is gone.

use std::path::PathBuf;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NAME: &str = "testbed.etcd-operator/local";

/// Serves claims until the testbed ends.
#[derive(Clone)]
pub(crate) struct Provisioner {
    pub(crate) client: Client,
    pub(crate) folder: PathBuf,
}

impl Provisioner {
    pub(crate) async fn run(self) {
        futures::join!(self.claims(), self.volumes());
    }

    async fn claims(&self) {
        let claims = Api::<PersistentVolumeClaim>::all(self.client.clone());
        let mut claims =
            pin!(watcher(claims, watcher::Config::default()).default_backoff().applied_objects());
        while let Some(event) = claims.next().await {
            log(match event {
                Ok(claim) => self.claim(&claim).await,
                Err(error) => Err(error.to_string()),
            });
        }
    }

    async fn volumes(&self) {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let mut volumes =
            pin!(watcher(volumes, watcher::Config::default()).default_backoff().applied_objects());
        while let Some(event) = volumes.next().await {
            log(match event {
                Ok(volume) => self.volume(&volume).await,
                Err(error) => Err(error.to_string()),
            });
        }
    }

    async fn claim(&self, claim: &PersistentVolumeClaim) -> Result<(), String> {
        let Some(spec) = &claim.spec else { return Ok(()) };
        let class = spec.storage_class_name.as_deref().unwrap_or_default();
        if claim.metadata.deletion_timestamp.is_some() || !["testbed-local", "testbed-net"].contains(&class) {
            return Ok(());
        }
        match claim.status.as_ref().and_then(|s| s.phase.as_deref()) {
            Some("Bound") => self.grow(claim).await,
            Some("Pending") | None => {
                let node = claim.annotations().get(SELECTED_NODE);
                if class == "testbed-net" || node.is_some() {
                    self.provision(claim, node).await
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    async fn provision(&self, claim: &PersistentVolumeClaim, node: Option<&String>) -> Result<(), String> {
        use std::os::unix::fs::PermissionsExt;
        let Some(spec) = &claim.spec else { return Ok(()) };
        let uid = claim.uid().unwrap_or_default();
        let name = format!("pvc-{uid}");
        let directory = self.folder.join(&name);
        let text = |e: std::io::Error| format!("{}: {e}", directory.display());
        tokio::fs::create_dir_all(&directory).await.map_err(text)?;
        let mode = std::fs::Permissions::from_mode(0o777);
        tokio::fs::set_permissions(&directory, mode).await.map_err(text)?;
        let class = spec.storage_class_name.as_deref().unwrap_or_default();
        let place = match node {
            Some(node) if class == "testbed-local" => {
                json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]})
            }
            _ => json!({"key": "kubernetes.io/hostname", "operator": "Exists"}),
        };
        let volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: NAME}},
            "spec": {
                "capacity": {"storage": requested(claim)},
                "accessModes": spec.access_modes,
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": class,
                "local": {"path": directory},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
                    "name": claim.name_any(), "namespace": claim.namespace(),
                },
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
            },
        });
        let volume = serde_json::from_value(volume).map_err(|e| e.to_string())?;
        match Api::all(self.client.clone()).create(&PostParams::default(), &volume).await {
            Ok(PersistentVolume { .. }) => Ok(()),
            Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
            Err(error) => Err(format!("creating volume {name}: {error}")),
        }
    }

    /// Plays the part of a storage driver that grows a volume. A directory has no size, so this is
    /// only the two objects; PersistentVolume first, as a real resizer does.
    async fn grow(&self, claim: &PersistentVolumeClaim) -> Result<(), String> {
        let has = claim.status.as_ref().and_then(|s| s.capacity.as_ref()?.get("storage").cloned());
        let wants = requested(claim);
        let volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref());
        let (Some(has), Some(wants), Some(volume)) = (has, wants, volume) else { return Ok(()) };
        if has == wants {
            return Ok(());
        }
        let params = PatchParams::default();
        let capacity = json!({"storage": wants});
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"capacity": capacity}}));
        volumes.patch(volume, &params, &patch).await.map_err(|e| format!("growing volume {volume}: {e}"))?;
        let name = claim.name_any();
        let namespace = claim.namespace().unwrap_or_default();
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &namespace);
        let patch = Patch::Merge(json!({"status": {"capacity": capacity, "conditions": []}}));
        let done = claims.patch_status(&name, &params, &patch).await;
        done.map(drop).map_err(|e| format!("growing claim {namespace}/{name}: {e}"))
    }

    async fn volume(&self, volume: &PersistentVolume) -> Result<(), String> {
        let released = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Released");
        let ours = volume.annotations().get(PROVISIONED_BY).map(String::as_str) == Some(NAME);
        let policy = volume.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref());
        if !released || !ours || policy != Some("Delete") || volume.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = volume.name_any();
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        match volumes.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(e)) if e.code == 404 => {}
            Err(error) => return Err(format!("deleting volume {name}: {error}")),
        }
        let path = volume.spec.as_ref().and_then(|s| s.local.as_ref()).map(|l| PathBuf::from(&l.path));
        match path {
            Some(path) if path.parent() == Some(&self.folder) => match tokio::fs::remove_dir_all(&path).await
            {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(format!("removing {}: {error}", path.display()))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

fn requested(
    claim: &PersistentVolumeClaim,
) -> Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned()
}

fn log(done: Result<(), String>) {
    if let Err(error) = done {
        eprintln!("provisioner: {error}");
    }
}
