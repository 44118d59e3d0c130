//! What the stores show, in core's values, and what live reads showed of the rest ([`super::unseen`]). No I/O
//! here: watches and reads run elsewhere.

use std::{collections::BTreeMap, sync::Arc};

use etcd_operator_api::{EtcdCluster, EtcdMember, StorageMedium, names};
use etcd_operator_core::{
    view::{BudgetState, ClusterView, Presence, ServiceKind, ServiceState},
    volume::may_hold_data,
};
use etcd_operator_etcd::{Expected, Target};
use etcd_operator_kubernetes::{drift, objects, view};
use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::{
    Kubernetes, budget,
    shown::{Shown, ShownMember},
};
use crate::ports::{ClusterKey, SeenCluster, SeenMember, Sight};

impl Sight for Kubernetes {
    fn owners(&self, namespace: &str, name: &str) -> Vec<ClusterKey> {
        let owners = self.0.stores.owners(namespace, name);
        owners
            .into_iter()
            .map(|uid| ClusterKey { namespace: namespace.to_owned(), name: name.to_owned(), uid })
            .collect()
    }

    fn cluster(&self, key: &ClusterKey) -> SeenCluster {
        if !self.0.stores.is_ready() {
            return SeenCluster {
                cluster: Presence::Unknown,
                services: BTreeMap::new(),
                budget: BudgetState::Unknown,
                members: Vec::new(),
                version: String::new(),
                own_version: String::new(),
            };
        }
        let shown = self.shown(key, self.stored_cluster(key), self.0.stores.members_of(&key.uid));
        self.0.views.of(&key.uid, shown, |shown| view_of(key, shown))
    }
}

impl Kubernetes {
    /// One cluster made of this EtcdCluster and these EtcdMembers, with all else from the stores.
    pub(super) fn seen(
        &self,
        key: &ClusterKey,
        cluster: Option<Arc<EtcdCluster>>,
        members: Vec<Arc<EtcdMember>>,
    ) -> SeenCluster {
        view_of(key, &self.shown(key, cluster, members))
    }

    fn shown(
        &self,
        key: &ClusterKey,
        cluster: Option<Arc<EtcdCluster>>,
        members: Vec<Arc<EtcdMember>>,
    ) -> Shown {
        Shown {
            cluster,
            headless: self.service(&key.namespace, &names::headless_service(&key.name)),
            client: self.service(&key.namespace, &names::client_service(&key.name)),
            budget: self.budget(&key.namespace, &names::disruption_budget(&key.name)),
            members: members.into_iter().map(|object| self.shown_member(key, object)).collect(),
        }
    }

    fn shown_member(&self, key: &ClusterKey, object: Arc<EtcdMember>) -> ShownMember {
        let name = object.name_any();
        let pod = self.pod(&key.namespace, &name);
        let pvc_name = names::pvc(&name);
        let pvc = self.0.stores.pvc(&key.namespace, &pvc_name);
        let pvc = pvc.or_else(|| self.0.unseen.get(&key.namespace, &pvc_name));
        // A volume that was there is not gone because a label of it is. That of a member on its way out is looked
        // for too, since it may have to serve until its replacement does; but it counts as gone meanwhile, so that
        // a departure does not wait for a read each time that it has deleted a volume itself.
        let stays = object.metadata.deletion_timestamp.is_none();
        let was_there = object.status.as_ref().is_some_and(|status| status.pvc_uid.is_some());
        // Data in memory needs no volume.
        let was_there = was_there && object.spec.storage.medium == StorageMedium::Volume;
        let pvc_unknown = pvc.is_none() && was_there && !self.is_missing(&object) && stays;
        ShownMember { object, pod, pvc, pvc_unknown }
    }

    /// The Pod of that name, if the watch shows it or a live read found it.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.0.stores.pod(namespace, name).or_else(|| self.0.unseen.get(namespace, name))
    }

    /// The Service of that name, if the watch shows it or a live read found it.
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.0.stores.service(namespace, name).or_else(|| self.0.unseen.get(namespace, name))
    }

    /// The PodDisruptionBudget of that name, if the watch shows it or a live read found it.
    fn budget(&self, namespace: &str, name: &str) -> Option<Arc<PodDisruptionBudget>> {
        self.0.stores.budget(namespace, name).or_else(|| self.0.unseen.get(namespace, name))
    }
}

fn view_of(key: &ClusterKey, shown: &Shown) -> SeenCluster {
    let cluster = shown.cluster.as_deref().map(view::cluster);
    let version = |meta: &ObjectMeta| meta.resource_version.clone().unwrap_or_default();
    let own = shown.cluster.as_ref().map(|c| version(&c.metadata));
    let services = [&shown.headless, &shown.client];
    let services = services.map(|service| service.as_ref().map(|s| version(&s.metadata)).unwrap_or_default());
    let members = shown.members.iter().map(|m| version(&m.object.metadata));
    let budget = match shown.cluster.as_deref() {
        Some(c) => budget::state_of(key, c, shown.budget.as_deref()),
        None => BudgetState::Unknown,
    };
    // Not its resourceVersion, which moves with each count of the disruption controller.
    let counted = format!("{budget:?}");
    let versions: Vec<String> =
        own.clone().into_iter().chain(services).chain([counted]).chain(members).collect();
    SeenCluster {
        budget,
        members: shown.members.iter().map(|m| view_of_member(m, cluster.as_ref())).collect(),
        services: shown.cluster.as_deref().map(|c| services_of(key, c, shown)).unwrap_or_default(),
        cluster: cluster.map_or(Presence::Absent, Presence::Present),
        version: versions.join("/"),
        own_version: own.unwrap_or_default(),
    }
}

fn services_of(
    key: &ClusterKey,
    cluster: &EtcdCluster,
    shown: &Shown,
) -> BTreeMap<ServiceKind, ServiceState> {
    let extra = cluster.spec.additional_metadata.as_ref();
    [(ServiceKind::Headless, &shown.headless), (ServiceKind::Client, &shown.client)]
        .into_iter()
        .filter_map(|(kind, live)| {
            // A cluster from the API server has all that the builder needs.
            let wanted = objects::service(cluster, kind, extra).ok()?;
            Some((kind, drift::state(live.as_deref(), &wanted, key.uid.as_str())))
        })
        .collect()
}

fn view_of_member(shown: &ShownMember, cluster: Option<&ClusterView>) -> SeenMember {
    let object = &*shown.object;
    let member = view::member(object);
    let pod = shown.pod.as_ref().map(|p| view::pod(p, object));
    let target = pod.as_ref().filter(|p| p.ours && !p.ended && may_hold_data(&member, p)).and_then(|p| {
        let expected = Expected {
            cluster_id: cluster.and_then(|c| c.recorded.cluster_id),
            member_id: member.recorded.member_id,
        };
        Some(Target::new(member.name.clone(), p.uid.clone(), p.ip?, objects::dns_name(object), expected))
    });
    let versions = [
        Some(&object.metadata),
        shown.pod.as_ref().map(|p| &p.metadata),
        shown.pvc.as_ref().map(|p| &p.metadata),
    ];
    let version = versions.map(|meta| meta.and_then(|m| m.resource_version.clone()).unwrap_or_default());
    let pvc = match &shown.pvc {
        None if shown.pvc_unknown => Presence::Unknown,
        found => present(found.as_ref().map(|p| view::pvc(p, object))),
    };
    SeenMember { pvc, pod: present(pod), member, target, version: version.join("/") }
}

fn present<T>(object: Option<T>) -> Presence<T> {
    object.map_or(Presence::Absent, Presence::Present)
}
