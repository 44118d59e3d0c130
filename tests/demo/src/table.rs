//! How a [`Scene`] looks: as a table that is drawn over itself, or as lines about what changed. Pure.

use std::time::Duration;

use crate::scene::{Row, Scene};

/// How many Events are shown below the table.
const EVENTS: usize = 6;
/// Longest line that fits a small terminal: a longer one would wrap, and the next redraw would miss it.
const WIDTH: usize = 100;

const HEAD: [&str; 6] = ["MEMBER", "NODE", "POD", "ROLE", "READY", "DB SIZE"];

/// The whole picture.
pub(crate) fn table(scene: &Scene, passed: Duration) -> Vec<String> {
    let mut lines = vec![
        format!(
            "EtcdCluster {}: {} of {} voters serve, {:.0} s",
            scene.name,
            scene.ready,
            scene.replicas,
            passed.as_secs_f32()
        ),
        String::new(),
    ];
    let rows: Vec<[String; 6]> = scene.members.iter().map(cells).collect();
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|i| rows.iter().map(|r| r[i].len()).chain([HEAD[i].len()]).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String; 6]| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    lines.push(line(&HEAD.map(str::to_owned)));
    lines.extend(rows.iter().map(line));
    lines.push(String::new());
    lines.extend(scene.conditions.iter().cloned());
    if !scene.events.is_empty() {
        lines.push(String::new());
        lines.extend(scene.events.iter().rev().take(EVENTS).rev().map(|e| format!("· {e}")));
    }
    lines.into_iter().map(|l| l.chars().take(WIDTH).collect()).collect()
}

fn cells(row: &Row) -> [String; 6] {
    let ready = if row.ready { "yes" } else { "no" };
    let size = row.db_size.map_or_else(|| "-".to_owned(), bytes);
    let node = if row.node.is_empty() { "-" } else { &row.node };
    [row.name.clone(), node.to_owned(), row.pod.clone(), row.role.to_owned(), ready.to_owned(), size]
}

fn bytes(n: u64) -> String {
    match n {
        0..10_240 => format!("{n} B"),
        10_240..10_485_760 => format!("{} KiB", n >> 10),
        _ => format!("{} MiB", n >> 20),
    }
}

/// One line for each member, condition and Event that is not what it was.
pub(crate) fn changes(before: &Scene, now: &Scene) -> Vec<String> {
    let mut lines = Vec::new();
    for row in &now.members {
        let old = before.members.iter().find(|r| r.name == row.name);
        // The size changes all the time and is no step.
        let same = |old: &Row| Row { db_size: row.db_size, ..old.clone() } == *row;
        if !old.is_some_and(same) {
            let [name, node, pod, role, ready, _] = cells(row);
            lines.push(format!("{name}  node {node}  pod {pod}  {role}  ready {ready}"));
        }
    }
    for row in before.members.iter().filter(|r| !now.members.iter().any(|n| n.name == r.name)) {
        lines.push(format!("{}  gone", row.name));
    }
    let new = |old: &[String], all: &[String]| {
        all.iter().filter(|line| !old.contains(line)).cloned().collect::<Vec<_>>()
    };
    lines.extend(new(&before.conditions, &now.conditions));
    lines.extend(new(&before.events, &now.events).into_iter().map(|e| format!("· {e}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, role: &'static str) -> Row {
        Row {
            name: name.into(),
            node: "node1".into(),
            pod: "Running".into(),
            role,
            ready: true,
            db_size: None,
        }
    }

    fn scene(members: Vec<Row>) -> Scene {
        Scene { name: "db".into(), replicas: 3, ready: 1, members, ..Scene::default() }
    }

    #[test]
    fn columns_stand_under_their_heads_and_no_line_wraps() {
        let mut scene = scene(vec![row("db-x7k2p", "leader"), row("db-bbbbb", "learner")]);
        scene.conditions = vec!["x".repeat(400)];
        let lines = table(&scene, Duration::from_secs(7));
        let column = lines[2].find("ROLE");
        assert_eq!(lines[3].find("leader"), column);
        assert_eq!(lines[4].find("learner"), column);
        assert!(lines.iter().all(|l| l.chars().count() <= WIDTH));
    }

    #[test]
    fn only_what_changed_is_told_and_a_size_is_no_change() {
        let before = scene(vec![row("db-a", "leader"), row("db-b", "learner")]);
        let mut now = before.clone();
        now.members[0].db_size = Some(1);
        assert!(changes(&before, &now).is_empty());
        now.members[1].role = "voter";
        assert_eq!(changes(&before, &now), ["db-b  node node1  pod Running  voter  ready yes"]);
        now.members.remove(0);
        assert!(changes(&before, &now).contains(&"db-a  gone".to_owned()));
    }

    #[test]
    fn sizes_are_read_at_a_glance() {
        assert_eq!([20_480, 500, 30 << 20].map(bytes), ["20 KiB", "500 B", "30 MiB"]);
    }
}
