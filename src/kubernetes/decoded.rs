//! Owns how an object of the API server's becomes one of a kind, or is set aside as one that does not decode,
//! without a word about its neighbours in a list or a watch. Pure.
//!
//! kube's own guard for this builds every object three times, managedFields included; that took a tenth of
//! the operator's time. Here managedFields, often half of an object, is skipped as it is read.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

/// An object, or what can be said of it if it does not decode.
#[derive(Debug, Clone)]
pub(crate) struct Decoded<K>(pub(crate) Result<K, Undecodable>);

/// An object that is not of the kind that it should be.
#[derive(Debug, Clone)]
pub(crate) struct Undecodable {
    /// Its metadata, which do decode: without them nobody could say which object it is.
    pub(crate) metadata: ObjectMeta,
    /// What is wrong with it.
    pub(crate) error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = deserializer.deserialize_map(Entries::OfObject)?;
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        match K::deserialize(Value::Object(object)) {
            Ok(decoded) => Ok(Self(Ok(decoded))),
            Err(error) => {
                let metadata = ObjectMeta::deserialize(metadata).map_err(D::Error::custom)?;
                Ok(Self(Err(Undecodable { metadata, error: error.to_string() })))
            }
        }
    }
}

/// Reads entries, but for `metadata.managedFields`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    OfObject,
    OfMetadata,
}

impl<'de> Visitor<'de> for Entries {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = match (self, key.as_str()) {
                (Entries::OfMetadata, "managedFields") => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Entries::OfObject, "metadata") => {
                    Value::Object(entries.next_value_seed(Entries::OfMetadata)?)
                }
                _ => entries.next_value()?,
            };
            map.insert(key, value);
        }
        Ok(map)
    }
}

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<K: Resource> Resource for Decoded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|undecodable| &undecodable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|undecodable| &mut undecodable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;

    fn pod(name: &str, containers: Value) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "labels": {"managedFields": "a label may be called so"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {"containers": containers, "managedFields": "and a field of another part is ignored"},
        })
    }

    #[test]
    fn an_object_decodes_without_its_managed_fields_and_with_everything_else() {
        let text = pod("a", json!([{"name": "etcd"}])).to_string();
        let ours = serde_json::from_str::<Decoded<Pod>>(&text).unwrap().0.unwrap();
        let mut theirs: Pod = serde_json::from_str(&text).unwrap();
        assert_eq!(theirs.metadata.managed_fields.take().map(|f| f.len()), Some(1));
        assert_eq!(ours, theirs);
    }

    // VC-05
    #[test]
    fn in_a_list_one_object_that_does_not_decode_is_named_and_the_others_do() {
        let items = [pod("a", json!([])), pod("b", json!("not a list")), pod("c", json!([]))];
        let text = json!({"kind": "PodList", "metadata": {}, "items": items}).to_string();
        let list: ObjectList<Decoded<Pod>> = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = list.items.iter().map(|p| (p.meta().name.as_deref(), p.0.is_ok())).collect();
        assert_eq!(names, [(Some("a"), true), (Some("b"), false), (Some("c"), true)]);
    }

    #[test]
    fn an_event_decodes_in_whichever_order_its_two_fields_come() {
        let object = pod("a", json!([])).to_string();
        for text in [
            format!(r#"{{"type":"ADDED","object":{object}}}"#),
            format!(r#"{{"object":{object},"type":"ADDED"}}"#),
        ] {
            let event: WatchEvent<Decoded<Pod>> = serde_json::from_str(&text).unwrap();
            assert!(
                matches!(event, WatchEvent::Added(Decoded(Ok(pod))) if pod.metadata.managed_fields.is_none())
            );
        }
    }

    #[test]
    fn what_nobody_could_name_is_no_object() {
        for text in [r#"{"metadata": "none"}"#, "[]", r#"{"metadata": {"name": 1}}"#] {
            assert!(serde_json::from_str::<Decoded<Pod>>(text).is_err(), "{text}");
        }
    }
}
