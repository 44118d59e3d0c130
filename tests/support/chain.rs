//! Kills the operator at one failpoint after the other, until it has come through all of them.

use std::time::Duration;

use super::Scene;
use super::converged::converged;

/// The identity that a restarted container keeps, so that it need not wait for its own Lease to expire.
const IDENTITY: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-000000000001");
/// From the start of one life to its end or to the wanted state. After each restart a formed cluster is only looked at
/// until no call of the former life can be applied any more.
const LIFE: Duration = Duration::from_secs(90);

/// `effect:before` and `effect:after` for each effect.
pub fn points(effects: &[&str]) -> Vec<String> {
    effects.iter().flat_map(|effect| [format!("{effect}:before"), format!("{effect}:after")]).collect()
}

/// Starts the operator with all of `points` armed, and again without each point that has ended it, until the cluster
/// has `n` voters. Fails if a point was never reached.
pub async fn run(scene: &mut Scene, points: &[String], cluster: &str, n: usize) {
    let mut left = points.to_vec();
    let mut read = scene.operator_log().len();
    loop {
        let armed = left.join(",");
        let env = [("ETCD_OPERATOR_FAILPOINTS", armed.as_str()), IDENTITY];
        match &mut scene.operator {
            Some(operator) => operator.restart_with(&env).await.unwrap(),
            None => scene.start(&env).await,
        }
        let mut operator = scene.operator.take().expect("it was started");
        let status = tokio::select! {
            status = operator.wait(LIFE) => Some(status.unwrap()),
            _ = converged(scene, cluster, n, LIFE) => None,
        };
        scene.operator = Some(operator);
        let Some(status) = status else { break };
        let log = scene.operator_log();
        let reached = log[read..].lines().find_map(|line| {
            line.strip_prefix("failpoint ")?.strip_suffix(" reached, aborting").map(str::to_owned)
        });
        let reached =
            reached.unwrap_or_else(|| panic!("the operator ended with {status}, at none of {armed}"));
        read = log.len();
        left.retain(|point| *point != reached);
    }
    assert!(left.is_empty(), "{cluster} has its {n} voters, and these points were never reached: {left:?}");
}
