//! What a spec may say and a person may regret. Nothing is stopped by it. Pure.

use crate::{EtcdClusterSpec, StorageMedium, bytes};

impl EtcdClusterSpec {
    /// In words, if members keep their data in memory and their memory limit is smaller than that data may
    /// become: the pages of a tmpfs count against the Pod, so a full one gets etcd killed before its size
    /// limit is reached, and the tmpfs outlives the container, so that it is killed again (LS-07).
    ///
    /// `None` without such a limit, and for a limit or size that is no quantity: the API server refuses
    /// the first, [`EtcdClusterSpec::invalid`] the second.
    ///
    /// ```
    /// # use etcd_operator_api::EtcdClusterSpec;
    /// let spec: EtcdClusterSpec = serde_json::from_value(serde_json::json!({
    ///     "version": "3.6.16", "storage": {"medium": "Memory", "size": "256Mi"},
    ///     "resources": {"limits": {"memory": "128Mi"}},
    /// })).unwrap();
    /// assert!(spec.memory_limit_too_small().is_some());
    /// ```
    #[must_use]
    pub fn memory_limit_too_small(&self) -> Option<String> {
        if self.storage.medium != StorageMedium::Memory {
            return None;
        }
        let limit = self.resources.as_ref()?.limits.as_ref()?.get("memory")?;
        let size = &self.storage.size;
        // etcd needs memory of its own too, so that equal is too small.
        (bytes(limit)? <= bytes(size)?).then(|| {
            format!(
                "resources.limits.memory {} does not cover storage.size {}: data in memory counts against that limit. Raise the limit above the size, with room for etcd itself",
                limit.0, size.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn warned(medium: &str, size: Value, limits: Value) -> bool {
        let spec = json!({"version": "3.6.16", "storage": {"medium": medium, "size": size},
            "resources": {"limits": limits}});
        serde_json::from_value::<EtcdClusterSpec>(spec).unwrap().memory_limit_too_small().is_some()
    }

    // LS-07
    #[test]
    fn a_memory_limit_that_the_data_alone_can_fill_is_warned_of() {
        for limit in ["1", "100m", "128Mi", "255.9Mi", "268435455", "268435456", "256Mi", "0.25Gi", "268e6"] {
            assert!(warned("Memory", json!("256Mi"), json!({ "memory": limit })), "{limit}");
        }
        for limit in ["268435457", "257Mi", "1Gi", "268.5M", "0.3e9", "1E"] {
            assert!(!warned("Memory", json!("256Mi"), json!({ "memory": limit })), "{limit}");
        }
        assert!(warned("Memory", json!(268_435_456), json!({"memory": 1000})), "VC-02: bare numbers");
    }

    // LS-07
    #[test]
    fn only_data_in_memory_under_a_memory_limit_is_warned_of() {
        assert!(!warned("", json!("256Mi"), json!({"memory": "128Mi"})), "a volume");
        assert!(!warned("Memory", json!("256Mi"), json!({})), "no limit");
        assert!(!warned("Memory", json!("256Mi"), json!({"cpu": "1"})), "no limit of memory");
        let mut spec = EtcdClusterSpec::new("3.6.16");
        spec.storage.medium = StorageMedium::Memory;
        assert_eq!(spec.memory_limit_too_small(), None, "no resources");
    }

    #[test]
    fn what_is_no_quantity_is_told_elsewhere() {
        for odd in ["", "lots", "1gi", "1e99"] {
            assert!(!warned("Memory", json!("256Mi"), json!({ "memory": odd })), "{odd:?}");
            assert!(!warned("Memory", json!(odd), json!({"memory": "128Mi"})), "{odd:?}");
        }
        assert!(warned("Memory", json!("256Mi"), json!({"memory": "-1Gi"})), "negative");
    }
}
