//! How a changed spec reaches members that run. No I/O.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EtcdClusterSpec;

/// Who restarts members for a changed spec.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateStrategyType {
    /// The operator, one member at a time.
    #[default]
    RollingUpdate,
    /// You, by deleting Pods. New Pods are made as the spec says.
    OnDelete,
}

/// How a changed spec reaches members that run.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// RollingUpdate: the operator restarts members, one at a time. OnDelete: a member follows when you
    /// delete its Pod.
    #[serde(default, rename = "type")]
    pub kind: UpdateStrategyType,
}

impl EtcdClusterSpec {
    /// Whether the operator may restart members for a changed spec. It may unless the spec says OnDelete.
    #[must_use]
    pub fn rolls(&self) -> bool {
        self.update_strategy.unwrap_or_default().kind == UpdateStrategyType::RollingUpdate
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_on_delete_keeps_the_operator_from_rolling() {
        let rolls = |strategy: Value| {
            let spec = json!({"version": "3.6.16", "updateStrategy": strategy});
            serde_json::from_value::<EtcdClusterSpec>(spec).unwrap().rolls()
        };
        assert!(EtcdClusterSpec::new("3.6.16").rolls());
        assert!(rolls(json!({})));
        assert!(rolls(json!({"type": "RollingUpdate"})));
        assert!(!rolls(json!({"type": "OnDelete"})));
    }
}
