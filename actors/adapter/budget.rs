//! The effects on a cluster's PodDisruptionBudget, and how it is seen. Each effect passes the one gate.

use etcd_operator_api::{EtcdCluster, names};
use etcd_operator_core::view::BudgetState;
use etcd_operator_kubernetes::{
    drift_budget,
    failure::ApiFailure,
    gate::{Created, Target},
    objects,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::{Kubernetes, hands::built};
use crate::ports::{ClusterKey, Hands, Outcome, Step};

/// How the budget of this cluster stands.
pub(super) fn state_of(
    key: &ClusterKey,
    cluster: &EtcdCluster,
    live: Option<&PodDisruptionBudget>,
) -> BudgetState {
    let extra = cluster.spec.additional_metadata.as_ref();
    // A cluster from the API server has all that the builder needs; the floor is not compared.
    objects::disruption_budget(cluster, 0, extra)
        .map_or(BudgetState::Unknown, |wanted| drift_budget::state(live, &wanted, key.uid.as_str()))
}

impl Kubernetes {
    /// Creates the budget, or puts right what is there and ours: see [`Kubernetes::put_service`].
    pub(super) async fn put_budget(
        &self,
        key: &ClusterKey,
        min_available: usize,
        blocks: bool,
    ) -> Result<Outcome, ApiFailure> {
        let Some(cluster) = self.stored_cluster(key) else { return Ok(Outcome::Outdated) };
        let extra = cluster.spec.additional_metadata.as_ref();
        let wanted = objects::disruption_budget(&cluster, min_available, extra).map_err(built)?;
        let name = names::disruption_budget(&key.name);
        let live = match self.0.stores.budget(&key.namespace, &name) {
            Some(seen) => Some((*seen).clone()),
            None => match self.0.writer.create_budget(&wanted).await? {
                Created::New(_) => {
                    if blocks {
                        let note = format!(
                            "PodDisruptionBudget {name} lets no Pod of one or two voters be evicted: a drain waits until there are three, or the Pod is deleted by hand"
                        );
                        self.tell(key, Step::BudgetBlocksDrain, None, note);
                    }
                    return Ok(Outcome::Done);
                }
                Created::Exists => self.0.reader.get_budget(&key.namespace, &name).await?,
            },
        };
        let Some(live) = live else { return Ok(Outcome::Outdated) };
        if !objects::is_controlled_by(&live.metadata, key.uid.as_str()) {
            self.note(&key.name, live);
            return Ok(Outcome::Foreign);
        }
        let Some(repair) = drift_budget::repair(&live, &wanted) else { return Ok(Outcome::Already) };
        let follows = objects::extra::follows_spec(&repair);
        self.0.writer.patch_budget(&Target::of(&live)?, repair).await?;
        if drift_budget::is_edited(&live, &wanted) && !follows {
            let note = format!("PodDisruptionBudget {name} had been edited and was put right");
            self.tell(key, Step::BudgetRepaired, None, note);
        }
        Ok(Outcome::Done)
    }

    /// Deletes the budget, if it is there and ours.
    pub(super) async fn delete_budget(&self, key: &ClusterKey) -> Result<Outcome, ApiFailure> {
        let name = names::disruption_budget(&key.name);
        let Some(live) = self.0.reader.get_budget(&key.namespace, &name).await? else {
            return Ok(Outcome::Already);
        };
        if !objects::is_controlled_by(&live.metadata, key.uid.as_str()) {
            return Ok(Outcome::Foreign);
        }
        self.0.writer.delete_budget(&Target::of(&live)?).await?;
        Ok(Outcome::Done)
    }
}
