//! Kills the operator at one failpoint after the other, until it has come through all of them.

use std::time::Duration;

use super::Scene;
use super::converged::converged;

/// The identity that a restarted container keeps, so that it need not wait for its own Lease to expire.
const IDENTITY: (&str, &str) = ("POD_UID", "00000000-0000-4000-8000-000000000001");
/// From the start of one life to its end or to the wanted state. After each restart a formed cluster is only looked at
/// until no call of the former life can be applied any more.
const LIFE: Duration = Duration::from_secs(90);

/// From the moment at which everybody can see the last write to the end of the process that made it.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// `effect:before` and `effect:after` for each effect.
pub fn points(effects: &[&str]) -> Vec<String> {
    effects.iter().flat_map(|effect| [format!("{effect}:before"), format!("{effect}:after")]).collect()
}

/// Starts the operator with the first of `points` armed, and again with the next one each time that it has ended there,
/// until it has come through all of them and the cluster has `n` voters. `points` are in the order in which an
/// undisturbed operator reaches them, each only after the one before: what another actor does meanwhile is done in a life
/// that ends elsewhere, and never comes again. Fails if one is never reached.
pub async fn run(scene: &mut Scene, points: &[String], cluster: &str, n: usize) {
    let mut read = scene.operator_log().len();
    for point in points {
        restart(scene, point).await;
        let mut operator = scene.operator.take().expect("it was started");
        let status = tokio::select! {
            status = operator.wait(LIFE) => status.unwrap(),
            // The write that ends at this point may be the one that makes the cluster whole.
            _ = converged(scene, cluster, n, LIFE) => operator.wait(LAST_WRITE).await.unwrap_or_else(|error| {
                panic!("{cluster} has its {n} voters, and {point} was never reached: {error}")
            }),
        };
        scene.operator = Some(operator);
        let log = scene.operator_log();
        let reached = format!("failpoint {point} reached, aborting");
        assert!(log[read..].lines().any(|line| line == reached), "it ended with {status}, not at {point}");
        read = log.len();
    }
    restart(scene, "").await;
    converged(scene, cluster, n, LIFE).await;
}

async fn restart(scene: &mut Scene, point: &str) {
    let env = [("ETCD_OPERATOR_FAILPOINTS", point), IDENTITY];
    match &mut scene.operator {
        Some(operator) => operator.restart_with(&env).await.unwrap(),
        None => scene.start(&env).await,
    }
}
