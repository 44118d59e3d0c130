//! Owns the reads that go to the API server itself: consistent, never from a cache. Does I/O,
//! decides nothing.
//!
//! No resourceVersion is given, which the API server answers with what etcd holds now, not with
//! its watch cache.

use etcd_operator_api::{EtcdCluster, EtcdMember};
use etcd_operator_core::{ids::Uid, time::timeouts};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolumeClaim, Pod, Service},
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{
    client::deadline,
    decoded::Decoded,
    failure::{ApiFailure, Call},
    objects::is_controlled_by,
};

/// Page size of lists, client-go's.
const PAGE: u32 = 500;

/// Reads from the API server. None says that the object is not there; every other doubt is an error.
#[derive(Clone)]
pub struct Reader {
    client: Client,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl Reader {
    /// A reader over this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The EtcdCluster of that name.
    ///
    /// # Errors
    /// If the API server did not answer, refused, or holds an object that does not decode.
    pub async fn get_cluster(&self, namespace: &str, name: &str) -> Result<Option<EtcdCluster>, ApiFailure> {
        self.get(namespace, name).await
    }

    /// The EtcdMember of that name.
    ///
    /// # Errors
    /// See [`Reader::get_cluster`].
    pub async fn get_member(&self, namespace: &str, name: &str) -> Result<Option<EtcdMember>, ApiFailure> {
        self.get(namespace, name).await
    }

    /// The Pod of that name, whatever its labels.
    ///
    /// # Errors
    /// See [`Reader::get_cluster`].
    pub async fn get_pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApiFailure> {
        self.get(namespace, name).await
    }

    /// The PVC of that name, whatever its labels.
    ///
    /// # Errors
    /// See [`Reader::get_cluster`].
    pub async fn get_pvc(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PersistentVolumeClaim>, ApiFailure> {
        self.get(namespace, name).await
    }

    /// The Service of that name, whatever its labels.
    ///
    /// # Errors
    /// See [`Reader::get_cluster`].
    pub async fn get_service(&self, namespace: &str, name: &str) -> Result<Option<Service>, ApiFailure> {
        self.get(namespace, name).await
    }

    /// The PodDisruptionBudget of that name, whatever its labels.
    ///
    /// # Errors
    /// See [`Reader::get_cluster`].
    pub async fn get_budget(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PodDisruptionBudget>, ApiFailure> {
        self.get(namespace, name).await
    }

    /// Every EtcdMember whose controller has that UID, sorted by name.
    ///
    /// # Errors
    /// See [`Reader::get_cluster`]. An EtcdMember of the namespace that does not decode is an error
    /// too: whether it belongs to the cluster is then the one thing that its metadata can tell, and
    /// a list without one of the members would be a lie.
    pub async fn list_members(&self, namespace: &str, owner: &Uid) -> Result<Vec<EtcdMember>, ApiFailure> {
        let api: Api<Decoded<EtcdMember>> = Api::namespaced(self.client.clone(), namespace);
        let mut params = ListParams::default().limit(PAGE);
        let mut members = Vec::new();
        loop {
            let page = deadline(Call::Read, timeouts::API_CALL, api.list(&params)).await?;
            for Decoded(item) in page.items {
                match item {
                    Ok(member) if is_controlled_by(&member.metadata, owner.as_str()) => members.push(member),
                    Ok(_) => {}
                    Err(invalid) if is_controlled_by(&invalid.metadata, owner.as_str()) => {
                        let name = invalid.metadata.name.unwrap_or_default();
                        return Err(ApiFailure::Other(format!(
                            "EtcdMember {namespace}/{name} does not decode as this version of the API: {}; \
                             correct it",
                            invalid.error
                        )));
                    }
                    Err(_) => {}
                }
            }
            // The first page fixed the version, so the pages fit together; if it expires, the error says so.
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        members.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(members)
    }

    async fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, ApiFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        deadline(Call::Read, timeouts::API_CALL, api.get_opt(name)).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake_api::{FakeApi, Fault};

    const MEMBERS: &str = "/apis/etcd-operator.cozystack.io/v1alpha2/namespaces/ns/etcdmembers";

    fn member(name: &str, owner: &str) -> serde_json::Value {
        json!({
            "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdMember",
            "metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": [
                {"apiVersion": "x", "kind": "EtcdCluster", "name": "c", "uid": owner, "controller": true}]},
            "spec": {"clusterName": "c", "version": "3.6.16", "storage": {}, "initialCluster": "",
                "clusterToken": "t"},
        })
    }

    // AP-04
    #[tokio::test]
    async fn members_are_listed_by_owner_uid_from_the_api_server_itself() {
        let api = FakeApi::default();
        for (name, owner) in [("b", "now"), ("a", "now"), ("x", "a former cluster of this name")] {
            api.put(&format!("{MEMBERS}/{name}"), member(name, owner));
        }
        let members = Reader::new(api.client()).list_members("ns", &"now".into()).await.unwrap();
        let names: Vec<_> = members.iter().filter_map(|m| m.metadata.name.as_deref()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(!api.take_log()[0].query.contains("resourceVersion"), "that would be a cached read");
    }

    // VC-05
    #[tokio::test]
    async fn a_member_that_does_not_decode_is_an_error_for_its_cluster_and_for_no_other() {
        let api = FakeApi::default();
        api.put(&format!("{MEMBERS}/a"), member("a", "one"));
        let mut bad = member("b", "two");
        bad["spec"]["replicas"] = json!("many");
        api.put(&format!("{MEMBERS}/b"), bad);
        let reader = Reader::new(api.client());
        assert_eq!(reader.list_members("ns", &"one".into()).await.unwrap().len(), 1);
        let refused = reader.list_members("ns", &"two".into()).await.unwrap_err();
        assert!(refused.to_string().contains("ns/b"), "{refused}");
    }

    // MG-02
    #[tokio::test(start_paused = true)]
    async fn a_failed_read_is_never_taken_for_absence() {
        let api = FakeApi::default();
        let reader = Reader::new(api.client());
        assert_eq!(reader.get_pod("ns", "p").await, Ok(None));
        for fault in [Fault::Hang, Fault::Refuse(500), Fault::Refuse(403), Fault::Refuse(429)] {
            api.faults(move |_| fault);
            assert!(reader.get_pod("ns", "p").await.is_err(), "{fault:?}");
        }
    }
}
