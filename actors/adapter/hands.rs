//! The effects on a real Kubernetes, and the live reads. Each effect passes the one gate; each
//! re-reads what it rests on.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use etcd_operator_api::{EtcdMember, Reason, labels, names};
use etcd_operator_core::{
    cluster::ClusterAction,
    ids::{MemberName, Uid},
    member::MemberAction,
    reason::Reason as CoreReason,
    report::Report,
    roll::{Part, Permit},
    time::Time,
    view::{JoinInstruction, MemberFacts, MemberRecord, ServiceKind},
};
use etcd_operator_kubernetes::{
    drift,
    failure::ApiFailure,
    gate::{Created, Deleted, Target},
    objects::{self, BuildError, NewMember},
    patch, status,
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{Kubernetes, unseen::Filtered};
use crate::ports::{ClusterKey, Effect, Hands, MemberKey, Outcome, SeenCluster, Step};

impl Hands for Kubernetes {
    fn is_gone(&self, key: &ClusterKey) -> BoxFuture<'static, Result<bool, ApiFailure>> {
        let (this, key) = (self.clone(), key.clone());
        async move {
            let found = this.0.reader.get_cluster(&key.namespace, &key.name).await?;
            Ok(found.is_none_or(|c| c.metadata.uid.as_deref() != Some(key.uid.as_str())))
        }
        .boxed()
    }

    fn confirm(&self, key: &ClusterKey) -> BoxFuture<'static, Result<SeenCluster, ApiFailure>> {
        let (this, key) = (self.clone(), key.clone());
        async move {
            let cluster = this.0.reader.get_cluster(&key.namespace, &key.name).await?;
            let cluster = cluster.filter(|c| c.metadata.uid.as_deref() == Some(key.uid.as_str()));
            let members = this.0.reader.list_members(&key.namespace, &key.uid).await?;
            let members: Vec<_> = members.into_iter().map(Arc::new).collect();
            Ok(this.seen(&key, cluster.map(Arc::new), members))
        }
        .boxed()
    }

    fn confirm_members(&self, key: &ClusterKey) -> BoxFuture<'static, Result<SeenCluster, ApiFailure>> {
        let (this, key) = (self.clone(), key.clone());
        async move {
            let members = this.0.reader.list_members(&key.namespace, &key.uid).await?;
            let members: Vec<_> = members.into_iter().map(Arc::new).collect();
            Ok(this.seen(&key, this.stored_cluster(&key), members))
        }
        .boxed()
    }

    fn act(&self, key: &ClusterKey, action: ClusterAction, member_name: MemberName) -> Effect {
        let (this, key) = (self.clone(), key.clone());
        async move {
            match action {
                ClusterAction::CreateService(kind) | ClusterAction::RepairService(kind) => {
                    this.put_service(&key, kind).await
                }
                ClusterAction::PutBudget { min_available, blocks } => {
                    this.put_budget(&key, min_available, blocks).await
                }
                ClusterAction::DeleteBudget => this.delete_budget(&key).await,
                ClusterAction::CreateMember { seed } => this.create_member(&key, seed, &member_name).await,
                ClusterAction::DeleteMember { name, uid, why } => {
                    this.delete_member(&key, &name, &uid, why).await
                }
                ClusterAction::ParkMember { name, uid } => this.set_dormant(&key, &name, &uid, true).await,
                ClusterAction::WakeMember { name, uid } => this.set_dormant(&key, &name, &uid, false).await,
                ClusterAction::UpdateMember { name, uid, part, permit } => {
                    this.update_member(&key, &name, &uid, part, permit.as_ref()).await
                }
                // A read, which the supervisor does by `confirm`.
                ClusterAction::ConfirmMembers => Ok(Outcome::Already),
            }
        }
        .boxed()
    }

    fn write_status(&self, key: &ClusterKey, report: &Report, now: Time) -> Option<Effect> {
        let object = self.stored_cluster(key)?;
        let wanted = status::cluster(&object, report, now);
        let change = change(object.status.as_ref(), &wanted)?;
        let this = self.clone();
        Some(
            async move {
                this.0.writer.patch_cluster_status(&Target::of(&*object)?, change).await?;
                Ok(Outcome::Done)
            }
            .boxed(),
        )
    }

    fn act_member(&self, key: &MemberKey, action: MemberAction) -> Effect {
        let (this, key) = (self.clone(), key.clone());
        async move {
            let Some(member) = this.stored_member(&key) else { return Ok(Outcome::Outdated) };
            match action {
                MemberAction::CreatePvc => this.create_pvc(&key, &member).await,
                MemberAction::RecordJoin { initial_cluster } => {
                    let change = json!({ "spec": { "initialCluster": initial_cluster } });
                    this.0.writer.patch_member(&Target::of(&*member)?, change).await?;
                    Ok(Outcome::Done)
                }
                MemberAction::CreatePod { instruction, pvc_uid } => {
                    this.create_pod(&key, &member, &instruction, pvc_uid.as_ref()).await
                }
                MemberAction::PatchPod { pod_uid, instruction, voter_label } => {
                    this.patch_pod(&key, &member, &pod_uid, &instruction, voter_label).await
                }
                MemberAction::DeletePod { pod_uid, why } => this.end_pod(&key, &pod_uid, why, false).await,
                MemberAction::EvictPod { pod_uid, why } => this.end_pod(&key, &pod_uid, why, true).await,
                MemberAction::ClearPermit => {
                    let change = json!({ "metadata": { "annotations": { labels::PERMIT: null } } });
                    this.0.writer.patch_member(&Target::of(&*member)?, change).await?;
                    Ok(Outcome::Done)
                }
                MemberAction::GrowPvc { pvc_uid } => this.grow_pvc(&key, &member, &pvc_uid).await,
                MemberAction::PatchPvc { pvc_uid } => this.patch_pvc(&key, &member, &pvc_uid).await,
                MemberAction::DeletePvc { pvc_uid } => this.delete_pvc(&key, &pvc_uid).await,
                MemberAction::Release => {
                    // A refused patch means that somebody else edited the finalizers: look again.
                    this.0.writer.release_member(&member).await?;
                    Ok(Outcome::Done)
                }
                // The actor's own: it asks, records and confirms by other methods.
                MemberAction::Ask(_) | MemberAction::Record(_) | MemberAction::ConfirmOwner => {
                    Ok(Outcome::Already)
                }
            }
        }
        .boxed()
    }

    fn write_member_status(
        &self,
        key: &MemberKey,
        facts: &MemberFacts,
        trouble: Option<(CoreReason, String)>,
        now: Time,
    ) -> Option<Effect> {
        let object = self.stored_member(key)?;
        // A member that has nothing to say yet is not worth a write.
        if object.status.is_none() && facts.member.recorded == MemberRecord::default() && trouble.is_none() {
            return None;
        }
        let wanted = status::member(&object, facts, trouble, now);
        let change = change(object.status.as_ref(), &wanted)?;
        let this = self.clone();
        Some(
            async move {
                this.0.writer.patch_member_status(&Target::of(&*object)?, change).await?;
                Ok(Outcome::Done)
            }
            .boxed(),
        )
    }

    fn tell(&self, key: &ClusterKey, step: Step, about: Option<&MemberName>, note: String) {
        let Some(cluster) = self.stored_cluster(key) else { return };
        // The EtcdMember may not be in the store yet; its name and kind are what people look for.
        let about = about.map(|name| ObjectReference {
            api_version: Some(EtcdMember::api_version(&()).into_owned()),
            kind: Some(EtcdMember::kind(&()).into_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(name.to_string()),
            ..ObjectReference::default()
        });
        self.0.events.tell_about(&*cluster, reason_of(step), about, note);
    }
}

impl Kubernetes {
    /// Creates the Service, or puts right what is there and ours. The store may have lost sight of it
    /// because a label was stripped, so the API server has the last word on what is there.
    async fn put_service(&self, key: &ClusterKey, kind: ServiceKind) -> Result<Outcome, ApiFailure> {
        let Some(cluster) = self.stored_cluster(key) else { return Ok(Outcome::Outdated) };
        let extra = cluster.spec.additional_metadata.as_ref();
        let wanted = objects::service(&cluster, kind, extra).map_err(built)?;
        let name = wanted.name_any();
        let live = match self.0.stores.service(&key.namespace, &name) {
            Some(seen) => Some((*seen).clone()),
            None => match self.0.writer.create_service(&wanted).await? {
                Created::New(_) => return Ok(Outcome::Done),
                Created::Exists => self.0.reader.get_service(&key.namespace, &name).await?,
            },
        };
        let Some(live) = live else { return Ok(Outcome::Outdated) };
        if !objects::is_controlled_by(&live.metadata, key.uid.as_str()) {
            self.note(&key.name, live);
            return Ok(Outcome::Foreign);
        }
        let Some(repair) = drift::repair(&live, &wanted) else { return Ok(Outcome::Already) };
        self.0.writer.repair_service(&Target::of(&live)?, repair).await?;
        self.tell(
            key,
            Step::ServiceRepaired,
            None,
            format!("Service {name} had been edited and was put right"),
        );
        Ok(Outcome::Done)
    }

    async fn create_member(
        &self,
        key: &ClusterKey,
        seed: bool,
        name: &MemberName,
    ) -> Result<Outcome, ApiFailure> {
        let Some(cluster) = self.stored_cluster(key) else { return Ok(Outcome::Outdated) };
        let Some(target) = cluster.status.as_ref().and_then(|s| s.observed.as_ref()) else {
            return Ok(Outcome::Outdated);
        };
        let new = NewMember { name: name.as_str(), seed };
        let member = objects::member(&cluster, target, new).map_err(built)?;
        match self.0.writer.create_member(&member).await? {
            Created::New(_) => {
                let (step, words) = if seed {
                    (Step::SeedCreated, "which forms the cluster")
                } else {
                    (Step::MemberCreated, "which joins as learner")
                };
                self.tell(key, step, Some(name), format!("created EtcdMember {name}, {words}"));
                Ok(Outcome::Done)
            }
            // An earlier try of ours landed after all, or the name is taken: the next LIST tells.
            Created::Exists => Ok(Outcome::Already),
        }
    }

    async fn delete_member(
        &self,
        key: &ClusterKey,
        name: &MemberName,
        uid: &Uid,
        why: CoreReason,
    ) -> Result<Outcome, ApiFailure> {
        let found = self.0.reader.get_member(&key.namespace, name.as_str()).await?;
        let Some(member) = found.filter(|m| m.metadata.uid.as_deref() == Some(uid.as_str())) else {
            return Ok(Outcome::Already);
        };
        let deleted = self.0.writer.delete_member(&Target::of(&member)?).await?;
        if deleted == Deleted::Requested {
            self.tell(key, Step::MemberDeleted, Some(name), format!("EtcdMember {name} is to leave: {why}"));
        }
        Ok(Outcome::Done)
    }

    /// Parks or wakes an EtcdMember, which says on itself whether a Pod of it is wanted.
    async fn set_dormant(
        &self,
        key: &ClusterKey,
        name: &MemberName,
        uid: &Uid,
        dormant: bool,
    ) -> Result<Outcome, ApiFailure> {
        let found = self.0.reader.get_member(&key.namespace, name.as_str()).await?;
        let Some(member) = found.filter(|m| m.metadata.uid.as_deref() == Some(uid.as_str())) else {
            return Ok(Outcome::Outdated);
        };
        if member.spec.dormant == dormant {
            return Ok(Outcome::Already);
        }
        let change = json!({ "spec": { "dormant": dormant } });
        self.0.writer.patch_member(&Target::of(&member)?, change).await?;
        let (step, note) = if dormant {
            (
                Step::MemberParked,
                format!("member {name} is paused; its data stays on PVC {}", names::pvc(name.as_str())),
            )
        } else {
            (Step::MemberWoken, format!("member {name} is resumed"))
        };
        self.tell(key, step, Some(name), note);
        Ok(Outcome::Done)
    }

    /// Brings a part of an EtcdMember's spec up to the target, and writes the permit with it: never one without the
    /// other.
    async fn update_member(
        &self,
        key: &ClusterKey,
        name: &MemberName,
        uid: &Uid,
        part: Part,
        permit: Option<&Permit>,
    ) -> Result<Outcome, ApiFailure> {
        let target = self.stored_cluster(key).and_then(|c| c.status.as_ref()?.observed.clone());
        let found = self.0.reader.get_member(&key.namespace, name.as_str()).await?;
        let found = found.filter(|m| m.metadata.uid.as_deref() == Some(uid.as_str()));
        let (Some(target), Some(member)) = (target, found) else { return Ok(Outcome::Outdated) };
        let wanted = objects::updated(&member, &target, part);
        let mut change = patch::diff_of(Some(&member.spec), &wanted.spec)
            .ok()
            .flatten()
            .map_or_else(|| json!({}), |spec| json!({ "spec": spec }));
        if part == Part::Metadata {
            change["metadata"] =
                json!({ "labels": wanted.metadata.labels, "annotations": wanted.metadata.annotations });
        }
        if let Some(permit) = permit {
            let mut permit = permit.clone();
            if permit.generation > 0 {
                // The API server counts this very patch, if it changes the spec.
                let now = member.metadata.generation.and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
                permit.generation = now + u64::from(change.get("spec").is_some());
            }
            change["metadata"]["annotations"][labels::PERMIT] = json!(permit.to_text());
        }
        self.0.writer.patch_member(&Target::of(&member)?, change).await?;
        if let Some(permit) = permit {
            let note = format!("member {name} is to be restarted: {}", permit.reason);
            self.tell(key, Step::RestartPermitted, Some(name), note);
        }
        Ok(Outcome::Done)
    }

    async fn create_pvc(&self, key: &MemberKey, member: &EtcdMember) -> Result<Outcome, ApiFailure> {
        let wanted = objects::pvc(member).map_err(built)?;
        match self.0.writer.create_pvc(&wanted).await? {
            Created::New(pvc) => {
                self.note_fresh(&pvc);
                let note = format!("created PVC {}", wanted.name_any());
                self.tell(&key.cluster, Step::VolumeCreated, Some(&key.name), note);
                Ok(Outcome::Done)
            }
            Created::Exists => {
                let namespace = &key.cluster.namespace;
                let live = self.0.reader.get_pvc(namespace, &wanted.name_any()).await?;
                let Some(live) = live else { return Ok(Outcome::Outdated) };
                self.note_existing(key, live, &format!("PVC {}", wanted.name_any()))
            }
        }
    }

    async fn create_pod(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        instruction: &JoinInstruction,
        pvc_uid: Option<&Uid>,
    ) -> Result<Outcome, ApiFailure> {
        let namespace = &key.cluster.namespace;
        let stands = match pvc_uid {
            Some(uid) => self.take_fresh(uid) || self.is_there(key, uid).await?,
            None => self.has_no_data_yet(key, member, instruction).await?,
        };
        if !stands {
            return Ok(Outcome::Outdated);
        }
        let wanted = objects::pod(member, &self.0.settings, instruction).map_err(built)?;
        match self.0.writer.create_pod(&wanted).await? {
            Created::New(_) => {
                self.tell(
                    &key.cluster,
                    Step::PodCreated,
                    Some(&key.name),
                    format!("created Pod {}", key.name),
                );
                Ok(Outcome::Done)
            }
            Created::Exists => {
                let Some(live) = self.0.reader.get_pod(namespace, key.name.as_str()).await? else {
                    return Ok(Outcome::Outdated);
                };
                self.note_existing(key, live, &format!("Pod {}", key.name))
            }
        }
    }

    /// Whether the member's PVC is the recorded one, by a live read.
    async fn is_there(&self, key: &MemberKey, pvc_uid: &Uid) -> Result<bool, ApiFailure> {
        let pvc = self.0.reader.get_pvc(&key.cluster.namespace, &names::pvc(key.name.as_str())).await?;
        Ok(pvc.is_some_and(|p| {
            p.metadata.uid.as_deref() == Some(pvc_uid.as_str()) && p.metadata.deletion_timestamp.is_none()
        }))
    }

    /// Whether a member that keeps its data in memory has had no Pod that the store does not know of, and, if it is to
    /// form the cluster, whether that has not formed: by live reads.
    async fn has_no_data_yet(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        instruction: &JoinInstruction,
    ) -> Result<bool, ApiFailure> {
        let namespace = &key.cluster.namespace;
        let pod_uid = |m: &EtcdMember| m.status.as_ref().and_then(|s| s.pod_uid.clone());
        let live = self.0.reader.get_member(namespace, key.name.as_str()).await?;
        let same = live.is_some_and(|live| {
            live.metadata.uid == member.metadata.uid && pod_uid(&live) == pod_uid(member)
        });
        if !same || !matches!(instruction, JoinInstruction::New { .. }) {
            return Ok(same);
        }
        let cluster = self.0.reader.get_cluster(namespace, &key.cluster.name).await?;
        Ok(cluster.is_some_and(|c| {
            c.metadata.uid.as_deref() == Some(key.cluster.uid.as_str())
                && c.status.is_none_or(|status| status.cluster_id.is_none())
        }))
    }

    /// Notes a PVC that this process has just created. No Pod has run on it, so the member has no data
    /// that it could be started without.
    fn note_fresh(&self, pvc: &PersistentVolumeClaim) {
        if let Some(uid) = &pvc.metadata.uid {
            self.0.fresh.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.as_str().into());
        }
    }

    /// Whether the PVC was created by this process and no Pod was created on it yet. Yes only once.
    fn take_fresh(&self, pvc: &Uid) -> bool {
        self.0.fresh.lock().unwrap_or_else(PoisonError::into_inner).remove(pvc)
    }

    async fn patch_pod(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        pod_uid: &Uid,
        instruction: &JoinInstruction,
        voter: bool,
    ) -> Result<Outcome, ApiFailure> {
        let found = self.pod(&key.cluster.namespace, key.name.as_str());
        let Some(pod) = found.filter(|p| p.metadata.uid.as_deref() == Some(pod_uid.as_str())) else {
            return Ok(Outcome::Outdated);
        };
        let wanted = objects::labels_of(member);
        let mut annotations = objects::annotations_of(member);
        annotations.extend(objects::instruction_annotations(instruction));
        let mut set: BTreeMap<String, Value> = wanted.into_iter().map(|(k, v)| (k, json!(v))).collect();
        // A merge patch removes what it sets to null.
        set.insert(labels::ROLE.to_owned(), if voter { json!(labels::ROLE_VOTER) } else { Value::Null });
        let change = json!({ "metadata": {
            "labels": set,
            "annotations": annotations,
        }});
        self.0.writer.patch_pod(&Target::of(&*pod)?, change).await?;
        Ok(Outcome::Done)
    }

    async fn end_pod(
        &self,
        key: &MemberKey,
        pod_uid: &Uid,
        why: CoreReason,
        evict: bool,
    ) -> Result<Outcome, ApiFailure> {
        let found = self.0.reader.get_pod(&key.cluster.namespace, key.name.as_str()).await?;
        let Some(pod) = found.filter(|p| p.metadata.uid.as_deref() == Some(pod_uid.as_str())) else {
            return Ok(Outcome::Already);
        };
        let target = Target::of(&pod)?;
        let deleted = if evict {
            self.0.writer.evict_pod(&target).await?
        } else {
            self.0.writer.delete_pod(&target).await?
        };
        if deleted == Deleted::Requested {
            self.tell(
                &key.cluster,
                Step::PodDeleted,
                Some(&key.name),
                format!("deleted Pod {}: {why}", key.name),
            );
        }
        Ok(Outcome::Done)
    }

    async fn patch_pvc(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        pvc_uid: &Uid,
    ) -> Result<Outcome, ApiFailure> {
        let name = names::pvc(key.name.as_str());
        let found = self.0.reader.get_pvc(&key.cluster.namespace, &name).await?;
        let Some(pvc) = found.filter(|p| p.metadata.uid.as_deref() == Some(pvc_uid.as_str())) else {
            return Ok(Outcome::Outdated);
        };
        let (labels, annotations) = (objects::labels_of(member), objects::annotations_of(member));
        let change = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        self.0.writer.patch_pvc(&Target::of(&pvc)?, change).await?;
        Ok(Outcome::Done)
    }

    async fn grow_pvc(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        pvc_uid: &Uid,
    ) -> Result<Outcome, ApiFailure> {
        let name = names::pvc(key.name.as_str());
        let found = self.0.reader.get_pvc(&key.cluster.namespace, &name).await?;
        let Some(pvc) = found.filter(|p| p.metadata.uid.as_deref() == Some(pvc_uid.as_str())) else {
            return Ok(Outcome::Outdated);
        };
        let size = &member.spec.storage.size;
        let change = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        self.0.writer.patch_pvc(&Target::of(&pvc)?, change).await?;
        let note = format!("asked for {} on PVC {name}", size.0);
        self.tell(&key.cluster, Step::VolumeGrown, Some(&key.name), note);
        Ok(Outcome::Done)
    }

    async fn delete_pvc(&self, key: &MemberKey, pvc_uid: &Uid) -> Result<Outcome, ApiFailure> {
        let name = names::pvc(key.name.as_str());
        let found = self.0.reader.get_pvc(&key.cluster.namespace, &name).await?;
        let Some(pvc) = found.filter(|p| p.metadata.uid.as_deref() == Some(pvc_uid.as_str())) else {
            return Ok(Outcome::Already);
        };
        self.0.writer.delete_pvc(&Target::of(&pvc)?).await?;
        Ok(Outcome::Done)
    }

    /// An object was to be created and exists. The watch has not shown it: it lags, or the object has not
    /// our labels. The next decision is taken on what the API server has just shown.
    fn note_existing<K: Filtered + Resource<DynamicType = ()>>(
        &self,
        key: &MemberKey,
        live: K,
        what: &str,
    ) -> Result<Outcome, ApiFailure> {
        let ours = objects::is_controlled_by(live.meta(), key.uid.as_str());
        self.note(key.name.as_str(), live);
        if ours {
            return Ok(Outcome::Already);
        }
        let note = format!("{what} exists and is not ours; it is left alone, delete or rename it");
        self.tell(&key.cluster, Step::ConditionChanged(CoreReason::ForeignObject), Some(&key.name), note);
        Ok(Outcome::Foreign)
    }
}

/// The merge patch between two statuses; none when they are equal, so that nothing is written.
fn change<T: serde::Serialize>(before: Option<&T>, after: &T) -> Option<Value> {
    // Statuses are plain data; one that cannot be written as JSON does not exist.
    patch::diff_of(before, after).ok().flatten()
}

/// What was to be built cannot be, and never will from this object.
pub(super) fn built(error: BuildError) -> ApiFailure {
    ApiFailure::Invalid(error.to_string())
}

fn reason_of(step: Step) -> Reason {
    match step {
        Step::SeedCreated => Reason::SeedCreated,
        Step::ClusterFormed => Reason::ClusterFormed,
        Step::MemberCreated => Reason::MemberCreated,
        Step::LearnerAdded => Reason::LearnerAdded,
        Step::MemberPromoted => Reason::MemberPromoted,
        Step::MemberRemoved => Reason::MemberRemoved,
        Step::LeaderMoved => Reason::LeaderMoved,
        Step::MemberDeleted => Reason::MemberLeaving,
        Step::MemberParked => Reason::Dormant,
        Step::RestartPermitted => Reason::RollingUpdate,
        Step::VolumeGrown => Reason::VolumeGrows,
        Step::MemberWoken => Reason::MemberWoken,
        Step::PodCreated => Reason::PodCreated,
        Step::PodDeleted => Reason::PodDeleted,
        Step::VolumeCreated => Reason::VolumeCreated,
        Step::ServiceRepaired | Step::BudgetRepaired => Reason::DriftRepaired,
        Step::BudgetBlocksDrain => Reason::BudgetBlocksDrain,
        Step::ConditionChanged(reason) => status::reason(reason),
    }
}
