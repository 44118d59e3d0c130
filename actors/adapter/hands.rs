//! The effects on a real Kubernetes, and the live reads; those on Pods and PVCs are in [`super::member_objects`]. Each
//! effect passes the one gate; each re-reads what it rests on.

use std::sync::Arc;

use etcd_operator_api::{EtcdMember, Reason, labels, names};
use etcd_operator_core::{
    cluster::ClusterAction,
    ids::{MemberName, Uid},
    member::MemberAction,
    reason::Reason as CoreReason,
    report::Report,
    roll::{Part, Permit},
    time::Time,
    view::{MemberFacts, MemberRecord, ServiceKind},
};
use etcd_operator_kubernetes::{
    drift,
    failure::ApiFailure,
    gate::{Created, Deleted, Target},
    objects::{self, BuildError, NewMember},
    patch, status,
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::Kubernetes;
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
                MemberAction::CreateRecoveryPod { instruction, pvc_uid } => {
                    this.create_recovery_pod(&key, &member, &instruction, &pvc_uid).await
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
        let follows = objects::extra::follows_spec(&repair);
        self.0.writer.repair_service(&Target::of(&live)?, repair).await?;
        if follows {
            return Ok(Outcome::Done);
        }
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

    /// The EtcdMember of that name and UID, by a live read.
    async fn live_member(
        &self,
        key: &ClusterKey,
        name: &MemberName,
        uid: &Uid,
    ) -> Result<Option<EtcdMember>, ApiFailure> {
        let found = self.0.reader.get_member(&key.namespace, name.as_str()).await?;
        Ok(found.filter(|m| m.metadata.uid.as_deref() == Some(uid.as_str())))
    }

    async fn delete_member(
        &self,
        key: &ClusterKey,
        name: &MemberName,
        uid: &Uid,
        why: CoreReason,
    ) -> Result<Outcome, ApiFailure> {
        let Some(member) = self.live_member(key, name, uid).await? else {
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
        let Some(member) = self.live_member(key, name, uid).await? else {
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
        let (Some(target), Some(member)) = (target, self.live_member(key, name, uid).await?) else {
            return Ok(Outcome::Outdated);
        };
        let wanted = objects::updated(&member, &target, part);
        let mut change = patch::diff_of(Some(&member.spec), &wanted.spec)
            .ok()
            .flatten()
            .map_or_else(|| json!({}), |spec| json!({ "spec": spec }));
        if part == Part::Metadata {
            let entries = |m: &EtcdMember| json!({ "labels": m.metadata.labels, "annotations": m.metadata.annotations });
            // What is gone from them becomes null, which takes it away.
            change["metadata"] =
                patch::diff(&entries(&member), &entries(&wanted)).unwrap_or_else(|| json!({}));
        }
        // The API server counts this very patch, if it changes the spec.
        let changes = change.get("spec").is_some();
        let now = member.metadata.generation.and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
        let generation = now + u64::from(changes);
        if part == Part::Pod && changes {
            change["metadata"]["annotations"][labels::POD_GENERATION] = json!(generation.to_string());
        }
        if let Some(permit) = permit {
            let mut permit = permit.clone();
            if permit.generation > 0 {
                permit.generation = generation;
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
        Step::ConditionChanged(reason) | Step::Recovery(reason) => status::reason(reason),
    }
}
