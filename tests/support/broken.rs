//! Objects that the API server would not accept today, as an older CRD left them behind: written past it into its own
//! etcd, which the testbed serves without TLS on its loopback.

use etcd_operator_api::GROUP;
use serde_json::Value;

use super::{Scene, VERSION};

/// Where the testbed's API server keeps its objects.
const STORE: &str = "http://127.0.0.1:17379";

/// Stores an object of one of our kinds as it is, without any check.
pub async fn store(scene: &Scene, plural: &str, object: &Value) {
    let (namespace, name) = (scene.namespace.name(), object["metadata"]["name"].as_str().unwrap_or_default());
    let key = format!("/registry/{GROUP}/{plural}/{namespace}/{name}");
    scene.testbed.etcdctl(VERSION, &[STORE], &["put", &key, &object.to_string()]).await.unwrap();
}
