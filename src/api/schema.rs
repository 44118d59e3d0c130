//! Schemas that the derive cannot write, and the last pass over a generated schema. No I/O.
//!
//! The aim is what controller-gen would have written for the same fields, because a user may apply
//! either operator's CRDs over the other's: nothing is nullable (an explicit null is pruned, and the
//! default applies), quantities are int-or-string with a pattern, references and conditions merge as
//! they do for Kubernetes' own types.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// What the API server itself accepts as a quantity, as controller-gen writes it.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Properties that hold Kubernetes' own types. Their descriptions are dropped below the first level: they
/// are 9/10 of the text, and client-side apply keeps a second copy of all of it in an annotation.
const EMBEDDED: [&str; 5] =
    ["affinity", "resources", "topologySpreadConstraints", "imagePullSecrets", "tolerations"];

/// A quantity: integer or text.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true })
}

/// A reference by name within the namespace. The name defaults to "", as in Kubernetes' own types.
pub(crate) fn local_object_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": { "name": { "type": "string", "default": "" } },
        "x-kubernetes-map-type": "atomic"
    })
}

/// A list of references by name.
pub(crate) fn local_object_references(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": local_object_reference(generator) })
}

/// Name of a PriorityClass: a DNS subdomain. A Pod with another one could never be made.
pub(crate) fn priority_class(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
    })
}

/// Conditions, with the limits that metav1.Condition has, and one entry per type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "When the status of this condition last changed.",
                    "type": "string", "format": "date-time"
                },
                "message": { "description": "For people.", "type": "string", "maxLength": 32768 },
                "observedGeneration": {
                    "description": "The generation of the spec that this was said about.",
                    "type": "integer", "format": "int64", "minimum": 0
                },
                "reason": {
                    "description": "Why, in one CamelCase word.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
                },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
                }
            }
        }
    })
}

/// The last pass over the `openAPIV3Schema` of one version.
pub(crate) fn finish(root: &mut Value) {
    if let Some(root) = root.as_object_mut() {
        root.remove("title");
    }
    visit(root, &mut |node| {
        node.remove("nullable");
        if node.get("default").is_some_and(Value::is_null) {
            node.remove("default");
        }
        if node.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
            node.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
            node.insert("pattern".into(), json!(QUANTITY_PATTERN));
        }
        if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
            for name in EMBEDDED {
                if let Some(embedded) = properties.get_mut(name) {
                    let description = embedded.get("description").cloned();
                    visit(embedded, &mut |inner| {
                        inner.remove("description");
                    });
                    if let (Some(text), Some(embedded)) = (description, embedded.as_object_mut()) {
                        embedded.insert("description".into(), text);
                    }
                }
            }
            // ResourceRequirements.claims is a map by name in Kubernetes' own types.
            if let Some(claims) = properties
                .get_mut("resources")
                .and_then(|r| r.pointer_mut("/properties/claims"))
                .and_then(Value::as_object_mut)
            {
                claims.insert("x-kubernetes-list-type".into(), json!("map"));
                claims.insert("x-kubernetes-list-map-keys".into(), json!(["name"]));
            }
        }
    });
    if let Some(status) = root.pointer_mut("/properties/status") {
        // Only the operator writes the status. A rule or a default there could only get in its way: a
        // status that cannot be written hides the very thing that it should report.
        visit(status, &mut |node| {
            node.remove("default");
            node.remove("x-kubernetes-validations");
        });
    }
}

/// Calls `f` for this schema and for every schema below it. Property names are never taken for keywords.
fn visit(schema: &mut Value, f: &mut impl FnMut(&mut Map<String, Value>)) {
    let Some(node) = schema.as_object_mut() else { return };
    f(node);
    if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| visit(property, f));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = node.get_mut(key) {
            visit(inner, f);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(list) = node.get_mut(key).and_then(Value::as_array_mut) {
            list.iter_mut().for_each(|inner| visit(inner, f));
        }
    }
}
