//! The effects on a member's Pod and PVC. Each passes the one gate, and re-reads what it rests on.

use std::{collections::BTreeSet, sync::PoisonError};

use etcd_operator_api::{EtcdMember, RecoveryPhase, RecoveryStatus, labels, names};
use etcd_operator_core::{ids::Uid, reason::Reason as CoreReason, view::JoinInstruction};
use etcd_operator_kubernetes::{
    failure::ApiFailure,
    gate::{Created, Deleted, Target},
    objects,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::{Kubernetes, hands::built, unseen::Filtered};
use crate::ports::{Hands, MemberKey, Outcome, Step};

/// The labels and annotations that put those of a member's Pod or PVC right: what the spec has, and null for what came from
/// it and is in it no more.
fn metadata(live: &ObjectMeta, member: &EtcdMember) -> (Map<String, Value>, Map<String, Value>) {
    let (labels, annotations) = (objects::labels_of(member), objects::annotations_of(member));
    let [mut no_labels, mut no_annotations] = objects::extra::stale(live, &labels, &annotations);
    no_labels.extend(labels.into_iter().map(|(key, value)| (key, json!(value))));
    no_annotations.extend(annotations.into_iter().map(|(key, value)| (key, json!(value))));
    (no_labels, no_annotations)
}

impl Kubernetes {
    /// The member's PVC of that UID, by a live read.
    async fn live_pvc(
        &self,
        key: &MemberKey,
        uid: &Uid,
    ) -> Result<Option<PersistentVolumeClaim>, ApiFailure> {
        let name = names::pvc(key.name.as_str());
        let found = self.0.reader.get_pvc(&key.cluster.namespace, &name).await?;
        Ok(found.filter(|p| p.metadata.uid.as_deref() == Some(uid.as_str())))
    }

    pub(super) async fn create_pvc(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
    ) -> Result<Outcome, ApiFailure> {
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

    pub(super) async fn create_pod(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        instruction: &JoinInstruction,
        pvc_uid: Option<&Uid>,
    ) -> Result<Outcome, ApiFailure> {
        let stands = match pvc_uid {
            Some(uid) => self.take_fresh(uid) || self.is_there(key, uid).await?,
            None => self.has_no_data_yet(key, member, instruction).await?,
        };
        if !stands {
            return Ok(Outcome::Outdated);
        }
        let wanted = objects::pod(member, &self.0.settings, instruction).map_err(built)?;
        self.put_pod(key, &wanted).await
    }

    /// Creates the Pod in which the survivor of a recovery runs once. Nothing here rests on a store: by live reads the
    /// recovery stands, every other EtcdMember is on its way out, and none of them has a Pod.
    pub(super) async fn create_recovery_pod(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        instruction: &JoinInstruction,
        pvc_uid: &Uid,
    ) -> Result<Outcome, ApiFailure> {
        let namespace = &key.cluster.namespace;
        let cluster = self.0.reader.get_cluster(namespace, &key.cluster.name).await?;
        let cluster = cluster.filter(|c| c.metadata.uid.as_deref() == Some(key.cluster.uid.as_str()));
        let recovery = cluster.and_then(|c| c.status?.recovery);
        let stands = |r: &RecoveryStatus| {
            r.phase == RecoveryPhase::Rewriting && r.survivor.as_str() == key.name.as_str()
        };
        let Some(recovery) = recovery.filter(stands) else { return Ok(Outcome::Outdated) };
        let members = self.0.reader.list_members(namespace, &key.cluster.uid).await?;
        let others = members.iter().filter(|m| m.metadata.uid.as_deref() != Some(key.uid.as_str()));
        let mut names: BTreeSet<String> = recovery.others.into_iter().collect();
        for other in others {
            if other.metadata.deletion_timestamp.is_none() {
                return Ok(Outcome::Outdated);
            }
            names.insert(other.name_any());
        }
        for name in names {
            if self.0.reader.get_pod(namespace, &name).await?.is_some() {
                return Ok(Outcome::Outdated);
            }
        }
        if !self.is_there(key, pvc_uid).await? {
            return Ok(Outcome::Outdated);
        }
        let wanted = objects::recovery_pod(member, &self.0.settings, instruction).map_err(built)?;
        self.put_pod(key, &wanted).await
    }

    async fn put_pod(&self, key: &MemberKey, wanted: &Pod) -> Result<Outcome, ApiFailure> {
        match self.0.writer.create_pod(wanted).await? {
            Created::New(_) => {
                let note = format!("created Pod {}", key.name);
                self.tell(&key.cluster, Step::PodCreated, Some(&key.name), note);
                Ok(Outcome::Done)
            }
            Created::Exists => {
                let live = self.0.reader.get_pod(&key.cluster.namespace, key.name.as_str()).await?;
                let Some(live) = live else { return Ok(Outcome::Outdated) };
                self.note_existing(key, live, &format!("Pod {}", key.name))
            }
        }
    }

    /// Whether the member's PVC is the recorded one, by a live read.
    async fn is_there(&self, key: &MemberKey, pvc_uid: &Uid) -> Result<bool, ApiFailure> {
        let pvc = self.live_pvc(key, pvc_uid).await?;
        Ok(pvc.is_some_and(|p| p.metadata.deletion_timestamp.is_none()))
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

    pub(super) async fn patch_pod(
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
        let (mut set, mut annotations) = metadata(&pod.metadata, member);
        let instruction = objects::instruction_annotations(instruction);
        annotations.extend(instruction.into_iter().map(|(key, value)| (key, json!(value))));
        // A merge patch removes what it sets to null.
        set.insert(labels::ROLE.to_owned(), if voter { json!(labels::ROLE_VOTER) } else { Value::Null });
        let change = json!({ "metadata": {
            "labels": set,
            "annotations": annotations,
        }});
        self.0.writer.patch_pod(&Target::of(&*pod)?, change).await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn end_pod(
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

    pub(super) async fn patch_pvc(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        pvc_uid: &Uid,
    ) -> Result<Outcome, ApiFailure> {
        let Some(pvc) = self.live_pvc(key, pvc_uid).await? else {
            return Ok(Outcome::Outdated);
        };
        let (labels, annotations) = metadata(&pvc.metadata, member);
        let change = json!({ "metadata": { "labels": labels, "annotations": annotations } });
        self.0.writer.patch_pvc(&Target::of(&pvc)?, change).await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn grow_pvc(
        &self,
        key: &MemberKey,
        member: &EtcdMember,
        pvc_uid: &Uid,
    ) -> Result<Outcome, ApiFailure> {
        let name = names::pvc(key.name.as_str());
        let Some(pvc) = self.live_pvc(key, pvc_uid).await? else {
            return Ok(Outcome::Outdated);
        };
        let size = &member.spec.storage.size;
        let change = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        self.0.writer.patch_pvc(&Target::of(&pvc)?, change).await?;
        let note = format!("asked for {} on PVC {name}", size.0);
        self.tell(&key.cluster, Step::VolumeGrown, Some(&key.name), note);
        Ok(Outcome::Done)
    }

    pub(super) async fn delete_pvc(&self, key: &MemberKey, pvc_uid: &Uid) -> Result<Outcome, ApiFailure> {
        let Some(pvc) = self.live_pvc(key, pvc_uid).await? else {
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
