//! Owns the smallest JSON merge patch (RFC 7396) from one value to another. Does no I/O.

use serde::Serialize;
use serde_json::{Map, Value};

/// The patch that turns `before` into `after`: only what changed, null for what is gone. None when
/// there is nothing to change, so that no request is made.
///
/// Lists are replaced whole, as a merge patch does. A null inside `after` means absent.
pub fn diff(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let mut patch = Map::new();
            for (key, new) in after {
                let old = before.get(key).filter(|v| !v.is_null());
                let change = match (old, new) {
                    (None, Value::Null) => None,
                    (None, new) => Some(without_nulls(new)),
                    (Some(_), Value::Null) => Some(Value::Null),
                    (Some(old), new) => diff(old, new),
                };
                if let Some(change) = change {
                    patch.insert(key.clone(), change);
                }
            }
            for key in before.iter().filter(|(k, v)| !v.is_null() && !after.contains_key(*k)).map(|(k, _)| k)
            {
                patch.insert(key.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (before, after) if before == after => None,
        // A merge patch cannot turn something else into an object that must be exactly `after`
        // any better than by stating it whole; nulls would be kept out by the server anyway.
        (_, after) => Some(without_nulls(after)),
    }
}

/// The patch between two typed values; see [`diff`]. Absent counts as empty.
///
/// # Errors
/// Only if a value does not serialize, which for derived types does not happen.
pub fn diff_of<T: Serialize>(before: Option<&T>, after: &T) -> Result<Option<Value>, serde_json::Error> {
    let before = before.map_or_else(|| Ok(Value::Object(Map::new())), serde_json::to_value)?;
    Ok(diff(&before, &serde_json::to_value(after)?))
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        other => other.clone(),
    }
}

/// What the API server makes of a merge patch: RFC 7396. For tests and fakes.
pub fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, change) in patch {
        if change.is_null() {
            target.remove(key);
        } else {
            apply(target.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_to_change_is_no_patch() {
        let status = json!({"conditions": [{"type": "Ready"}], "memberID": "0a", "gone": null});
        assert_eq!(diff(&status, &status), None);
        assert_eq!(diff(&status, &json!({"conditions": [{"type": "Ready"}], "memberID": "0a"})), None);
    }

    #[test]
    fn only_what_changed_is_sent_and_what_is_gone_is_null() {
        let before = json!({"a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2]});
        let after = json!({"a": 1, "b": {"c": 3}, "e": [2]});
        assert_eq!(diff(&before, &after), Some(json!({"b": {"c": 3, "d": null}, "e": [2]})));
    }

    #[test]
    fn applying_the_patch_gives_the_value_that_was_wanted() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
        for _ in 0..2_000 {
            let (before, after) = (value(&mut random, 3), value(&mut random, 3));
            let mut patched = before.clone();
            if let Some(patch) = diff(&before, &after) {
                apply(&mut patched, &patch);
            }
            assert_eq!(patched, after, "from {before}");
        }
    }

    fn value(random: &mut impl rand::Rng, depth: u32) -> Value {
        let mut map = Map::new();
        for key in ["a", "b", "c"] {
            let value = match random.random_range(0..if depth > 0 { 4 } else { 3 }) {
                0 => continue,
                1 => json!(random.random_range(0..3)),
                2 => json!([random.random_range(0..2)]),
                _ => value(random, depth - 1),
            };
            map.insert(key.into(), value);
        }
        Value::Object(map)
    }
}
