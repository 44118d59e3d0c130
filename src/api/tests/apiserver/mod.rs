//! As much of an API server as a CRD's schema needs: pruning, defaults, structural validation and CEL.

use std::collections::BTreeMap;

use etcd_operator_api::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::cel::{Validator, apply_defaults};
use serde_json::Value;

/// The schemas of all kinds.
pub(crate) struct ApiServer {
    schemas: BTreeMap<String, Value>,
    validator: Validator,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        let schemas =
            crds().unwrap().iter().map(|crd| (crd.spec.names.kind.clone(), schema_of(crd))).collect();
        Self { schemas, validator: Validator::new() }
    }

    /// What would be stored, or the refusal.
    pub(crate) fn admit(&self, object: &Value, old: Option<&Value>) -> Result<Value, String> {
        let schema = &self.schemas[object["kind"].as_str().unwrap()];
        let mut object = object.clone();
        prune(schema, &mut object);
        let object = apply_defaults(schema, &object);
        let mut errors = Vec::new();
        validate(schema, &object, "", &mut errors);
        if !errors.is_empty() {
            return Err(errors.join("; "));
        }
        self.validator.validate(schema, &object, old).map_err(|errors| {
            errors.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        })?;
        Ok(object)
    }
}

/// The schema of a definition's only version.
pub(crate) fn schema_of(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions[0].schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).unwrap();
    serde_json::to_value(schema).unwrap()
}

/// Every CEL rule of a definition with the path of its field.
pub(crate) fn rules_of(crd: &CustomResourceDefinition) -> Vec<(String, Value)> {
    fn walk(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            found.push((path.to_owned(), rule.clone()));
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(property, &format!("{path}.{name}"), found);
        }
        for key in ["items", "additionalProperties"] {
            if schema[key].is_object() {
                walk(&schema[key], &format!("{path}[]"), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&schema_of(crd), "", &mut found);
    found
}

/// Paths of the schema's own properties that the value does not set. Does not look into Kubernetes' own types.
pub(crate) fn unset(schema: &Value, value: &Value, path: &str, missing: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match value.get(name) {
            None => missing.push(path),
            Some(_)
                if ["affinity", "resources", "topologySpreadConstraints", "tolerations"]
                    .contains(&name.as_str()) => {}
            Some(inner) => unset(property, inner, &path, missing),
        }
    }
    if let (Some(items), Some(list)) = (schema.get("items"), value.as_array()) {
        list.iter().for_each(|item| unset(items, item, path, missing));
    }
}

/// Drops unknown fields, and nulls where nothing is nullable.
fn prune(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(properties) = schema["properties"].as_object() {
                // metadata, kind and apiVersion are the API server's own; their schema is not in the CRD.
                object.retain(|key, value| {
                    ["metadata", "kind", "apiVersion"].contains(&key.as_str())
                        || properties.get(key).is_some_and(|p| !value.is_null() || p["nullable"] == true)
                });
                for (key, value) in object.iter_mut() {
                    if let Some(property) = properties.get(key).filter(|_| key != "metadata") {
                        prune(property, value);
                    }
                }
            } else if schema["additionalProperties"].is_object() {
                object.values_mut().for_each(|value| prune(&schema["additionalProperties"], value));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| prune(&schema["items"], value)),
        _ => {}
    }
}

fn validate(schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    let mut error = |text: String| errors.push(format!("{}: {text}", path.trim_start_matches('.')));
    if schema["x-kubernetes-int-or-string"] == true {
        if !(value.is_i64() || value.is_u64() || value.is_string()) {
            error(format!("{value} is neither integer nor text"));
        }
    } else if let Some(kind) = schema["type"].as_str() {
        let fits = match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            other => panic!("{path}: the test does not know type {other}"),
        };
        if !fits {
            error(format!("{value} is no {kind}"));
        }
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        error(format!("{value} is none of {allowed:?}"));
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str()) {
        let matches = regex::Regex::new(pattern).unwrap().is_match(text);
        if !matches {
            error(format!("{text:?} does not match {pattern}"));
        }
    }
    if let (Some(min), Some(text)) = (schema["minLength"].as_u64(), value.as_str()) {
        let length = text.chars().count() as u64;
        if length < min {
            error(format!("{text:?} is shorter than {min}"));
        }
    }
    if let (Some(max), Some(text)) = (schema["maxLength"].as_u64(), value.as_str()) {
        let length = text.chars().count() as u64;
        if length > max {
            error(format!("a text of {length} characters is longer than {max}"));
        }
    }
    if let Some(number) = value.as_f64() {
        if schema["minimum"].as_f64().is_some_and(|min| number < min) {
            error(format!("{number} is too small"));
        }
        if schema["maximum"].as_f64().is_some_and(|max| number > max) {
            error(format!("{number} is too large"));
        }
    }
    if let Some(object) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                error(format!("{name} is required"));
            }
        }
        for (key, value) in object {
            let inner = if schema["properties"][key].is_object() {
                &schema["properties"][key]
            } else {
                &schema["additionalProperties"]
            };
            if inner.is_object() && !(path.is_empty() && key == "metadata") {
                validate(inner, value, &format!("{path}.{key}"), errors);
            }
        }
    }
    for (index, value) in value.as_array().into_iter().flatten().enumerate() {
        validate(&schema["items"], value, &format!("{path}[{index}]"), errors);
    }
}
