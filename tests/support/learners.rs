//! A guard at the door of the client Service: whoever gets the voter's label or comes behind the Service is asked at
//! once whether it is a learner. Reads only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use etcd_operator_api::labels;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

use super::Scene;
use super::history::History;

/// Watches until it is dropped.
pub struct Door {
    found: Arc<Mutex<Vec<String>>>,
    asked: Arc<Mutex<usize>>,
    pods: History<Pod>,
    _slices: History<EndpointSlice>,
}

impl Door {
    /// Starts to watch.
    pub async fn watch(scene: &Scene) -> Self {
        let found = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::new(Mutex::new(0));
        let ask = {
            let (found, asked) = (found.clone(), asked.clone());
            move |what: String, address: String| {
                let (found, asked) = (found.clone(), asked.clone());
                tokio::spawn(async move {
                    if is_learner(&address).await {
                        found.lock().unwrap().push(what);
                    }
                    *asked.lock().unwrap() += 1;
                });
            }
        };
        let ask_too = ask.clone();
        let pods = History::start_with(scene.api::<Pod>(), move |pod| {
            let address = pod.status.as_ref().and_then(|s| s.pod_ip.clone());
            if let (true, Some(address)) = (is_voter(pod), address) {
                ask(format!("Pod {} is labelled as voter", pod.name_any()), address);
            }
        })
        .await;
        let slices = History::start_with(scene.api::<EndpointSlice>(), move |slice| {
            let service = slice.labels().get("kubernetes.io/service-name").cloned().unwrap_or_default();
            // The headless Service publishes everybody, so that members find each other.
            for endpoint in slice.endpoints.iter().filter(|_| service.ends_with("-client")) {
                for address in &endpoint.addresses {
                    ask_too(format!("{address} is behind {service}"), address.clone());
                }
            }
        })
        .await;
        Self { found, asked, pods, _slices: slices }
    }

    /// Fails if anybody was a learner (LP-07). Returns the recording of the Pods.
    pub fn check(&self) -> &History<Pod> {
        assert!(*self.asked.lock().unwrap() > 0, "nobody came");
        let found = self.found.lock().unwrap();
        assert!(found.is_empty(), "learners before clients: {found:?}");
        &self.pods
    }
}

/// Whether a Pod is labelled as a voter's.
pub fn is_voter(pod: &Pod) -> bool {
    pod.labels().get(labels::ROLE).is_some_and(|role| role == labels::ROLE_VOTER)
}

#[expect(clippy::disallowed_methods, reason = "one client for one member")]
async fn is_learner(address: &str) -> bool {
    let options = ConnectOptions::new().with_timeout(Duration::from_secs(2));
    let Ok(mut client) = Client::connect([format!("http://{address}:2379")], Some(options)).await else {
        return false;
    };
    client.status().await.is_ok_and(|status| status.is_learner())
}
