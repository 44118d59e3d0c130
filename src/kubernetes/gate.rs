//! Owns every write to the API server: the one gate. Does I/O.
//!
//! It lets a write through only while this process owns the cluster's shard for longer than the
//! call may take, sends it once, with a deadline and a guard against objects that have changed, and
//! says what came of it. It retries nothing and decides nothing.

use std::{fmt::Debug, future::Future, time::Duration};

use etcd_operator_api::{EtcdCluster, EtcdMember, labels::MEMBER_FINALIZER};
use etcd_operator_core::time::timeouts;
use etcd_operator_failpoints::{self as failpoints, Effect};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolumeClaim, Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    client::deadline,
    failure::{ApiFailure, Call},
    lease::Ownership,
};

/// What `valid_for` must cover beyond the call's own deadline: the time between the check and the send.
const SLACK: Duration = Duration::from_millis(500);

/// What came of a create.
#[derive(Debug, Clone, PartialEq)]
pub enum Created<T> {
    /// It was created, and this is what the API server stored.
    New(T),
    /// An object of that name exists. Whether it is ours is for the caller to find out, by UID.
    Exists,
}

/// What came of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// The API server took the request; finalizers and a grace period may still hold the object.
    Requested,
    /// It was gone already.
    Gone,
}

/// One object in the version that was read. A write to it is refused if either has changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

impl Target {
    /// The object as it was read.
    ///
    /// # Errors
    /// If it lacks a namespace, name, UID or resourceVersion, so did not come from the API server.
    pub fn of<K: Resource>(object: &K) -> Result<Self, ApiFailure> {
        let meta = object.meta();
        match (&meta.namespace, &meta.name, &meta.uid, &meta.resource_version) {
            (Some(namespace), Some(name), Some(uid), Some(resource_version)) => Ok(Self {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
                resource_version: resource_version.clone(),
            }),
            _ => Err(ApiFailure::Other(format!(
                "object {:?} was never read from the API server, so it cannot be written to",
                meta.name
            ))),
        }
    }
}

/// The gate for the writes on one shard's clusters, for one tenure.
#[derive(Debug, Clone)]
pub struct Writer {
    client: DebugClient,
    ownership: Ownership,
}

/// kube's client has nothing to show.
#[derive(Clone)]
struct DebugClient(Client);

impl Debug for DebugClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Writer {
    /// A gate that is open while `ownership` is valid.
    pub fn new(client: Client, ownership: Ownership) -> Self {
        Self { client: DebugClient(client), ownership }
    }

    /// The tenure that this gate is bound to.
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// POST of a Service.
    ///
    /// # Errors
    /// As all writes here: [`ApiFailure::NotOwner`] if nothing was sent for want of ownership,
    /// [`ApiFailure::Ambiguous`] if it may have been carried out.
    pub async fn create_service(&self, service: &Service) -> Result<Created<Service>, ApiFailure> {
        self.create(Effect::CreateService, service).await
    }

    /// PATCH of a Service that was edited by hand; `patch` from [`crate::drift`].
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn repair_service(&self, target: &Target, patch: Value) -> Result<Service, ApiFailure> {
        self.patch(Effect::RepairService, target, patch).await
    }

    /// POST of a PodDisruptionBudget.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn create_budget(
        &self,
        budget: &PodDisruptionBudget,
    ) -> Result<Created<PodDisruptionBudget>, ApiFailure> {
        self.create(Effect::CreateBudget, budget).await
    }

    /// PATCH of a PodDisruptionBudget; `patch` from [`crate::drift_budget`].
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn patch_budget(
        &self,
        target: &Target,
        patch: Value,
    ) -> Result<PodDisruptionBudget, ApiFailure> {
        self.patch(Effect::PatchBudget, target, patch).await
    }

    /// DELETE of a PodDisruptionBudget in exactly this version.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn delete_budget(&self, target: &Target) -> Result<Deleted, ApiFailure> {
        self.delete::<PodDisruptionBudget>(Effect::DeleteBudget, target).await
    }

    /// PATCH of an EtcdCluster's status. `status` is the merge patch of the status alone, from
    /// [`crate::patch::diff_of`].
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn patch_cluster_status(
        &self,
        target: &Target,
        status: Value,
    ) -> Result<EtcdCluster, ApiFailure> {
        self.patch_status(Effect::ClusterStatus, target, status).await
    }

    /// POST of an EtcdMember, finalizer included.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn create_member(&self, member: &EtcdMember) -> Result<Created<EtcdMember>, ApiFailure> {
        self.create(Effect::CreateMember, member).await
    }

    /// DELETE of an EtcdMember in exactly this version. Its finalizer keeps it until it has left etcd.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn delete_member(&self, target: &Target) -> Result<Deleted, ApiFailure> {
        self.delete::<EtcdMember>(Effect::DeleteMember, target).await
    }

    /// PATCH of an EtcdMember's spec or metadata.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn patch_member(&self, target: &Target, patch: Value) -> Result<EtcdMember, ApiFailure> {
        self.patch(Effect::PatchMember, target, patch).await
    }

    /// PATCH of an EtcdMember's status; see [`Writer::patch_cluster_status`].
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn patch_member_status(
        &self,
        target: &Target,
        status: Value,
    ) -> Result<EtcdMember, ApiFailure> {
        self.patch_status(Effect::MemberStatus, target, status).await
    }

    /// Takes our finalizer off an EtcdMember, and no other. A finalizer that somebody else added or
    /// removed meanwhile makes this a Conflict: a merge patch replaces the whole list, so it must
    /// rest on the list as it is (CL-08).
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn release_member(&self, member: &EtcdMember) -> Result<Deleted, ApiFailure> {
        let finalizers = member.metadata.finalizers.clone().unwrap_or_default();
        let kept: Vec<_> = finalizers.iter().filter(|f| *f != MEMBER_FINALIZER).collect();
        if kept.len() == finalizers.len() {
            return Ok(Deleted::Requested);
        }
        let patch = json!({ "metadata": { "finalizers": kept } });
        match self.patch::<EtcdMember>(Effect::ReleaseMember, &Target::of(member)?, patch).await {
            Ok(_) => Ok(Deleted::Requested),
            Err(ApiFailure::NotFound) => Ok(Deleted::Gone),
            Err(failure) => Err(failure),
        }
    }

    /// POST of a PVC.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn create_pvc(
        &self,
        pvc: &PersistentVolumeClaim,
    ) -> Result<Created<PersistentVolumeClaim>, ApiFailure> {
        self.create(Effect::CreatePvc, pvc).await
    }

    /// PATCH of a PVC's labels.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn patch_pvc(
        &self,
        target: &Target,
        patch: Value,
    ) -> Result<PersistentVolumeClaim, ApiFailure> {
        self.patch(Effect::PatchPvc, target, patch).await
    }

    /// DELETE of a PVC in exactly this version.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn delete_pvc(&self, target: &Target) -> Result<Deleted, ApiFailure> {
        self.delete::<PersistentVolumeClaim>(Effect::DeletePvc, target).await
    }

    /// POST of a Pod.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn create_pod(&self, pod: &Pod) -> Result<Created<Pod>, ApiFailure> {
        self.create(Effect::CreatePod, pod).await
    }

    /// DELETE of a Pod in exactly this version, with the Pod's own grace period.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn delete_pod(&self, target: &Target) -> Result<Deleted, ApiFailure> {
        self.delete::<Pod>(Effect::DeletePod, target).await
    }

    /// Eviction of a Pod of exactly this UID: the API server refuses with 429 while the disruption budget does.
    ///
    /// # Errors
    /// See [`Writer::create_service`]; [`ApiFailure::Throttled`] while the budget says no.
    pub async fn evict_pod(&self, target: &Target) -> Result<Deleted, ApiFailure> {
        let api: Api<Pod> = Api::namespaced(self.client.0.clone(), &target.namespace);
        let delete_options = Some(DeleteParams {
            preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        });
        let params = EvictParams { delete_options, ..EvictParams::default() };
        match self.send(Effect::EvictPod, api.evict(&target.name, &params)).await {
            Ok(_) => Ok(Deleted::Requested),
            Err(ApiFailure::NotFound) => Ok(Deleted::Gone),
            Err(failure) => Err(failure),
        }
    }

    /// PATCH of a Pod's labels or annotations.
    ///
    /// # Errors
    /// See [`Writer::create_service`].
    pub async fn patch_pod(&self, target: &Target, patch: Value) -> Result<Pod, ApiFailure> {
        self.patch(Effect::PatchPod, target, patch).await
    }

    pub(crate) async fn create<K>(&self, effect: Effect, object: &K) -> Result<Created<K>, ApiFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let Some(namespace) = &object.meta().namespace else {
            return Err(ApiFailure::Other(format!("{} without a namespace", K::kind(&()))));
        };
        let api: Api<K> = Api::namespaced(self.client.0.clone(), namespace);
        match self.send(effect, api.create(&PostParams::default(), object)).await {
            Ok(created) => Ok(Created::New(created)),
            Err(ApiFailure::AlreadyExists) => Ok(Created::Exists),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) async fn patch<K>(
        &self,
        effect: Effect,
        target: &Target,
        patch: Value,
    ) -> Result<K, ApiFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let patch = guarded(target, patch)?;
        let api: Api<K> = Api::namespaced(self.client.0.clone(), &target.namespace);
        let params = PatchParams::default();
        self.send(effect, api.patch(&target.name, &params, &Patch::Merge(&patch))).await
    }

    pub(crate) async fn patch_status<K>(
        &self,
        effect: Effect,
        target: &Target,
        status: Value,
    ) -> Result<K, ApiFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let patch = guarded(target, json!({ "status": status }))?;
        let api: Api<K> = Api::namespaced(self.client.0.clone(), &target.namespace);
        let params = PatchParams::default();
        self.send(effect, api.patch_status(&target.name, &params, &Patch::Merge(&patch))).await
    }

    pub(crate) async fn delete<K>(&self, effect: Effect, target: &Target) -> Result<Deleted, ApiFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.0.clone(), &target.namespace);
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(target.uid.clone()),
                resource_version: Some(target.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        match self.send(effect, api.delete(&target.name, &params)).await {
            Ok(_) => Ok(Deleted::Requested),
            Err(ApiFailure::NotFound) => Ok(Deleted::Gone),
            Err(failure) => Err(failure),
        }
    }

    /// The gate itself. The request is a future that has not been polled, so nothing is sent
    /// before ownership was checked.
    async fn send<T>(
        &self,
        effect: Effect,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ApiFailure> {
        if !self.ownership.valid_for(timeouts::API_CALL + SLACK) {
            return Err(ApiFailure::NotOwner);
        }
        failpoints::before(effect);
        let answer = deadline(Call::Write, timeouts::API_CALL, request).await;
        if answer.is_ok() && failpoints::after(effect) {
            return Err(ApiFailure::Ambiguous("the reply was lost by a failpoint".into()));
        }
        if let Err(failure) = &answer {
            tracing::debug!(effect = effect.name(), %failure, "a write did not succeed");
        }
        answer
    }
}

/// The patch with the version that was read: the API server refuses it if the object has changed,
/// and also if it was deleted and made anew, since no two versions are the same. The UID is left
/// out: the API server calls a wrong one invalid, which it is not.
fn guarded(target: &Target, mut patch: Value) -> Result<Value, ApiFailure> {
    let Value::Object(body) = &mut patch else {
        return Err(ApiFailure::Other("a patch must be a JSON object".into()));
    };
    let metadata = body.entry("metadata").or_insert_with(|| json!({}));
    metadata["resourceVersion"] = json!(target.resource_version);
    Ok(patch)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
