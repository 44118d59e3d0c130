//! What is written down when a run has failed. Reads only.

use std::fmt::Write as _;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::plan::CLUSTERS;
use crate::support::converged::words;
use crate::support::{Scene, etcd};

/// Lines of the operator's log that go into the account.
const TAIL: usize = 60;
/// Characters of each that are printed.
const WIDTH: usize = 300;

/// Writes everything that may explain `why` to a folder that outlives the testbed.
pub(crate) async fn keep(scene: &Scene, why: &str) -> Result<PathBuf, String> {
    let mut text = format!("{why}\n");
    for cluster in CLUSTERS {
        let _ = writeln!(text, "\n{cluster}: {}", words(&scene.get(cluster).await));
        for (pod, endpoint) in etcd::endpoints(scene, cluster, false).await {
            let status = etcd::status(scene, &endpoint).await;
            let _ = writeln!(text, "{pod} at {endpoint}: {status:?}");
        }
        let _ = writeln!(text, "{:?}", etcd::list(scene, cluster).await);
    }
    text.push('\n');
    for member in scene.members().await {
        let status = member.status.clone().unwrap_or_default();
        let (id, voter) = (status.member_id, status.is_voter);
        let leaving = member.metadata.deletion_timestamp.as_ref().map_or("", |_| ", on its way out");
        let _ = writeln!(text, "EtcdMember {}: {id:?}, voter {voter}{leaving}", member.name_any());
    }
    for pod in scene.pods().await {
        let _ = writeln!(text, "{}", line(&pod));
    }
    let log = scene.operator_log();
    let lines: Vec<&str> = log.lines().collect();
    let _ = writeln!(text, "\nthe end of the operators' log, the last to be started at the end:");
    for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
        let _ = writeln!(text, "{}", line.chars().take(WIDTH).collect::<String>());
    }
    println!("{text}");
    let folder = scene.namespace.dump().await.map_err(|e| e.to_string())?;
    for (name, content) in
        [("chaos.txt", text), ("operator.log", log), ("etcd.log", scene.logs.all().join("\n"))]
    {
        let path = folder.join(name);
        std::fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(folder)
}

fn line(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let containers: Vec<String> = status
        .container_statuses
        .unwrap_or_default()
        .iter()
        .map(|c| format!("ready {}, {} restarts, {:?}", c.ready, c.restart_count, c.state))
        .collect();
    format!(
        "Pod {} on {}: {}{} {}",
        pod.name_any(),
        pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).unwrap_or("no node"),
        status.phase.unwrap_or_default(),
        pod.metadata.deletion_timestamp.as_ref().map_or("", |_| ", on its way out,"),
        containers.join("; ")
    )
}
