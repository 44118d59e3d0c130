//! Owns what is said of the kinds that this build knows and does not act on yet: EtcdSnapshot and
//! EtcdDefrag. Each gets a condition that says so; nothing is ignored in silence. Does I/O: one
//! status patch for each object and generation.

use std::fmt::Debug;

use etcd_operator_api::{EtcdDefrag, EtcdSnapshot, Reason, conditions};
use etcd_operator_failpoints::Effect;
use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    failure::ApiFailure,
    gate::{Target, Writer},
};

/// A kind that is refused for now.
pub trait Task:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned
{
    /// The conditions of its status.
    fn conditions(&self) -> Vec<Condition>;
    /// Whether it has ended for good, so that nothing is said of it any more.
    fn is_final(&self) -> bool;
}

impl Task for EtcdSnapshot {
    fn conditions(&self) -> Vec<Condition> {
        self.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default()
    }
    fn is_final(&self) -> bool {
        use etcd_operator_api::SnapshotPhase::{Complete, Failed};
        matches!(self.status.as_ref().and_then(|s| s.phase), Some(Complete | Failed))
    }
}

impl Task for EtcdDefrag {
    fn conditions(&self) -> Vec<Condition> {
        self.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default()
    }
    fn is_final(&self) -> bool {
        use etcd_operator_api::DefragPhase::{Complete, Failed};
        matches!(self.status.as_ref().and_then(|s| s.phase), Some(Complete | Failed))
    }
}

/// Says on the object that this build does not act on its kind. Returns whether anything was written.
///
/// # Errors
/// As the write failed.
pub async fn refuse<K: Task>(writer: &Writer, object: &K, now: Timestamp) -> Result<bool, ApiFailure> {
    if object.is_final() || object.meta().deletion_timestamp.is_some() {
        return Ok(false);
    }
    let mut all = object.conditions();
    let words =
        format!("this build of the operator does not act on {} yet; nothing is done for it", K::kind(&()));
    let changed = conditions::upsert(
        &mut all,
        conditions::READY,
        conditions::Status::False,
        Reason::KindNotSupportedYet,
        words,
        object.meta().generation,
        &Time(now),
    );
    if !changed {
        return Ok(false);
    }
    let status = json!({ "conditions": all });
    writer.patch_status::<K>(Effect::TaskStatus, &Target::of(object)?, status).await?;
    tracing::info!(kind = %K::kind(&()), name = object.name_any(), reason = %Reason::KindNotSupportedYet, "refused");
    Ok(true)
}
