//! Owns which labels and annotations of an object came from a user's `additionalMetadata`, so that what is taken out of
//! the spec goes from the object, and what others have set stays. Pure.

use std::collections::BTreeMap;

use etcd_operator_api::{AdditionalMetadata, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

type Entries = BTreeMap<String, String>;

/// The keys that an object has from the spec, as they stand in [`labels::ADDITIONAL_METADATA`].
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Keys {
    annotations: Vec<String>,
    labels: Vec<String>,
}

impl Keys {
    fn of(extra: &AdditionalMetadata) -> Self {
        let keys =
            |entries: &Entries| entries.keys().filter(|key| !labels::is_reserved(key)).cloned().collect();
        Self { labels: keys(&extra.labels), annotations: keys(&extra.annotations) }
    }

    /// Those of `noted` that an object still has and that are wanted no more. Never one of the operator's own.
    fn gone(noted: &[String], has: Option<&Entries>, wants: &Entries) -> Vec<String> {
        let gone = |key: &&String| {
            !labels::is_reserved(key)
                && !wants.contains_key(*key)
                && has.is_some_and(|has| has.contains_key(*key))
        };
        noted.iter().filter(gone).cloned().collect()
    }
}

/// The annotations that `extra` asks for, and the note of its keys, without which nobody could tell later whose they are.
pub(super) fn annotations(extra: &AdditionalMetadata) -> Entries {
    let keys = Keys::of(extra);
    let mut all = labels::merged(Entries::new(), &extra.annotations);
    if !keys.labels.is_empty() || !keys.annotations.is_empty() {
        // Lists of text can be written as JSON.
        let note = serde_json::to_string(&keys).unwrap_or_default();
        all.insert(labels::ADDITIONAL_METADATA.to_owned(), note);
    }
    all
}

/// What of an object's metadata came from a spec that no longer has it, as the part of a merge patch that takes it away:
/// labels first, then annotations. An object without a note, or with a damaged one, keeps all.
pub fn stale(
    live: &ObjectMeta,
    wanted_labels: &Entries,
    wanted_annotations: &Entries,
) -> [Map<String, Value>; 2] {
    let note = live.annotations.as_ref().and_then(|all| all.get(labels::ADDITIONAL_METADATA));
    let keys: Keys = note.and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default();
    let taken = |keys: Vec<String>| keys.into_iter().map(|key| (key, Value::Null)).collect::<Map<_, _>>();
    let mut annotations = taken(Keys::gone(&keys.annotations, live.annotations.as_ref(), wanted_annotations));
    if note.is_some() && !wanted_annotations.contains_key(labels::ADDITIONAL_METADATA) {
        annotations.insert(labels::ADDITIONAL_METADATA.to_owned(), Value::Null);
    }
    [taken(Keys::gone(&keys.labels, live.labels.as_ref(), wanted_labels)), annotations]
}

/// Whether nothing of an object's metadata came from a spec that no longer has it.
pub fn is_fresh(live: &ObjectMeta, wanted_labels: &Entries, wanted_annotations: &Entries) -> bool {
    stale(live, wanted_labels, wanted_annotations).iter().all(Map::is_empty)
}

/// Whether a repair is about other keys of `additionalMetadata` and nothing else, so that nobody has edited the object.
pub fn follows_spec(repair: &Value) -> bool {
    repair.get("spec").is_none()
        && repair
            .pointer("/metadata/annotations")
            .is_some_and(|a| a.get(labels::ADDITIONAL_METADATA).is_some())
}

/// Takes away from `has` what the spec `had` and has no more: of an EtcdMember, whose own spec tells.
pub(super) fn take_away(has: &mut Entries, had: &Entries, wants: &Entries) {
    let keys: Vec<String> = had.keys().cloned().collect();
    for key in Keys::gone(&keys, Some(&*has), wants) {
        has.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(note: &str) -> ObjectMeta {
        serde_json::from_value(json!({
            "labels": {"team": "a", "others": "kept", labels::CLUSTER: "db"},
            "annotations": {"note": "a", "others": "kept", labels::ADDITIONAL_METADATA: note},
        }))
        .unwrap()
    }

    // VC-08
    #[test]
    fn what_was_noted_and_is_wanted_no_more_goes_and_the_note_with_it() {
        let note = json!({"labels": ["gone", "team"], "annotations": ["note"]}).to_string();
        let [no_labels, no_annotations] = stale(&live(&note), &Entries::new(), &Entries::new());
        assert_eq!(Value::Object(no_labels), json!({"team": null}));
        assert_eq!(Value::Object(no_annotations), json!({"note": null, labels::ADDITIONAL_METADATA: null}));
        let wanted = Entries::from([("team".to_owned(), "b".to_owned())]);
        assert!(
            stale(&live(&note), &wanted, &Entries::new())[0].is_empty(),
            "it is wanted, with another value"
        );
    }

    // VC-08
    #[test]
    fn a_note_that_was_damaged_or_forged_takes_nothing_of_the_operators_own_away() {
        let forged =
            json!({"labels": [labels::CLUSTER, labels::ROLE], "annotations": [labels::INITIAL_CLUSTER]});
        for note in [forged.to_string(), "{".to_owned(), "[]".to_owned(), String::new(), "null".to_owned()] {
            let [no_labels, no_annotations] = stale(&live(&note), &Entries::new(), &Entries::new());
            assert!(no_labels.is_empty(), "{note}: {no_labels:?}");
            let only_note = Map::from_iter([(labels::ADDITIONAL_METADATA.to_owned(), Value::Null)]);
            assert_eq!(no_annotations, only_note, "{note}");
        }
    }

    #[test]
    fn there_is_no_note_where_there_is_nothing_of_the_users() {
        assert_eq!(annotations(&AdditionalMetadata::default()), Entries::new());
        let reserved = Entries::from([(labels::ROLE.to_owned(), "voter".to_owned())]);
        let extra = AdditionalMetadata { labels: reserved, ..AdditionalMetadata::default() };
        assert_eq!(annotations(&extra), Entries::new());
    }
}
