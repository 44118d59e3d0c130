//! Matches what the operator says that it sent with what etcd says that it applied, change by change. No I/O.
//!
//! The member that was asked for a configuration change logs "applied a configuration change through raft" once the
//! change is applied, so that line is there once for each change, on one member. It logs the same line for an addition
//! that turned out to be one learner too many, and changes nothing: no member then says "added member". And a member
//! that ends, by a removal or by force, may take its log with it, and one whose client has gone writes no such line:
//! every other one then says "added member", "promote member" or "removed member", when it gets to it.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Scene;

/// After this long without an answer a change can no longer be applied: etcd gives up after 5 s and twice the
/// election timeout of 1 s.
const IN_DOUBT: SignedDuration = SignedDuration::from_secs(7);
/// The clocks are one, but a line is written a moment after the fact.
const SLACK: SignedDuration = SignedDuration::from_millis(50);

/// What a change does to whom: a peer URL for an addition, else a member ID.
type Subject = (String, String);

/// A change that the operator sent.
#[derive(Debug)]
struct Sent {
    at: Timestamp,
    subject: Subject,
    outcome: Option<(Timestamp, String)>,
}

/// A change that etcd applied.
#[derive(Debug)]
struct Applied {
    at: Timestamp,
    subject: Subject,
    /// Whether the member that was asked says so itself. Another one may have got to it later.
    first_hand: bool,
}

/// How many changes were matched, by kind.
pub type Counts = BTreeMap<String, usize>;

/// The changes that operators of this namespace have sent so far, in this order, with the one that each is about.
pub fn sent_so_far(scene: &Scene) -> Vec<(String, String)> {
    let mut sent = sent(&scene.operator_log(), "").unwrap();
    sent.sort_by_key(|s| s.at);
    sent.into_iter().map(|s| s.subject).collect()
}

/// Checks that every change that etcd applied was sent by an operator of this namespace, once; that every change with
/// the outcome "done" was applied, once; and that no change was sent while another one could still be applied.
///
/// `strangers` are the peer URLs of members that the test itself added, and the IDs of those that it removed.
pub fn check(scene: &Scene, strangers: &[&str]) -> Counts {
    let pods = scene.logs.all();
    let operators = scene.operator_log();
    verify(&operators, &pods, strangers, "").unwrap_or_else(|error| panic!("{error}"))
}

/// The same for one cluster of several in the namespace.
///
/// # Errors
/// What does not match.
pub fn check_cluster(scene: &Scene, cluster: &str, strangers: &[&str]) -> Result<Counts, String> {
    let prefix = format!("{cluster}-");
    verify(&scene.operator_log(), &scene.logs.of(&prefix), strangers, &prefix)
}

/// `asked` is what the name of each member begins with that the changes were sent to.
fn verify(operators: &str, pods: &[String], strangers: &[&str], asked: &str) -> Result<Counts, String> {
    let mut sent = sent(operators, asked)?;
    sent.sort_by_key(|s| s.at);
    let mut applied = applied(pods)?;
    // Whom the test removed an operator may have promoted before.
    applied.retain(|a| a.subject.0 == "member-promote" || !strangers.contains(&&*a.subject.1));
    applied.sort_by_key(|a| a.at);
    let everything = || format!("\nsent: {sent:#?}\napplied: {applied:#?}");
    let mut counts = Counts::new();
    let mut free: Vec<&Applied> = applied.iter().collect();
    // Who was told "done" comes first: one that was sent and froze may have left nothing behind for its successor's own.
    let answered_first = |s: &&Sent| s.outcome.as_ref().is_none_or(|(_, text)| text != "done");
    let mut by_certainty: Vec<&Sent> = sent.iter().collect();
    by_certainty.sort_by_key(answered_first);
    for s in by_certainty {
        // A change is applied after it is sent and before its answer; without an answer it may be at any time.
        let end = s.outcome.as_ref().map(|(at, _)| *at + SLACK);
        let found = free.iter().position(|a| {
            a.subject == s.subject
                && a.at + SLACK >= s.at
                && end.is_none_or(|end| !a.first_hand || a.at <= end)
        });
        let outcome = s.outcome.as_ref().map(|(_, text)| text.as_str());
        match (found, outcome) {
            // A new leader is no change of the membership; it only must not cross one.
            _ if s.subject.0 == "move-leader" => {}
            (Some(position), _) => {
                free.remove(position);
                *counts.entry(s.subject.0.clone()).or_default() += 1;
            }
            (None, Some("done")) => {
                return Err(format!("{s:?} was answered, but etcd applied no such change{}", everything()));
            }
            (None, _) => {}
        }
    }
    if let Some(more) = free.first() {
        return Err(format!(
            "etcd applied {more:?}, which no operator sent, or not that often{}",
            everything()
        ));
    }
    for (i, later) in sent.iter().enumerate() {
        for earlier in sent.iter().take(i).filter(|e| e.subject != later.subject) {
            let answered = earlier.outcome.as_ref().is_some_and(|(at, _)| *at <= later.at);
            let took_effect = applied
                .iter()
                .any(|a| a.subject == earlier.subject && a.at >= earlier.at - SLACK && a.at <= later.at);
            let repeated =
                sent.iter().any(|s| s.subject == earlier.subject && s.at > earlier.at && s.at < later.at);
            if !answered && !took_effect && !repeated && later.at < earlier.at + IN_DOUBT {
                return Err(format!(
                    "{later:?} was sent while {earlier:?} could still be applied{}",
                    everything()
                ));
            }
        }
    }
    Ok(counts)
}

fn sent(operators: &str, asked: &str) -> Result<Vec<Sent>, String> {
    let mut sent: Vec<Sent> = Vec::new();
    for line in operators.lines().filter(|l| l.contains("\"etcd_operator::membership\"")) {
        let value: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
        let text =
            |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(|| format!("no {key}: {line}"));
        if !text("member")?.starts_with(asked) {
            continue;
        }
        let at: Timestamp = text("timestamp")?.parse().map_err(|e| format!("{e}: {line}"))?;
        let subject = (text("change")?, text("subject")?);
        let outcome = text("outcome")?;
        if outcome == "sent" {
            sent.push(Sent { at, subject, outcome: None });
        // What is said without having been sent is about the check before it.
        } else if let Some(open) = sent.iter_mut().rev().find(|s| s.subject == subject && s.outcome.is_none())
        {
            open.outcome = Some((at, outcome));
        }
    }
    Ok(sent)
}

fn applied(pods: &[String]) -> Result<Vec<Applied>, String> {
    let mut urls: BTreeMap<String, String> = BTreeMap::new();
    // What others say, by change and member ID, and when the first of them got to it.
    let mut second_hand: BTreeMap<(&str, String), Timestamp> = BTreeMap::new();
    let mut changes = Vec::new();
    for line in pods {
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let id = |key: &str| format!("{:0>16}", text(key));
        let at = || text("ts").parse::<Timestamp>().map_err(|e| format!("{e}: {line}"));
        let said = match text("msg") {
            "added member" => {
                let url = value["added-peer-peer-urls"][0].as_str().unwrap_or_default();
                urls.insert(id("added-peer-id"), url.to_owned());
                // The first member is nobody's change.
                let learner = value["added-peer-is-learner"].as_bool().unwrap_or_default();
                learner.then(|| ("ConfChangeAddLearnerNode", id("added-peer-id")))
            }
            "promote member" => Some(("ConfChangeAddNode", id("promoted-member-id"))),
            "removed member" => Some(("ConfChangeRemoveNode", id("removed-remote-peer-id"))),
            "applied a configuration change through raft" => {
                let change = text("raft-conf-change").to_owned();
                changes.push((at()?, change, id("raft-conf-change-node-id"), true));
                None
            }
            _ => None,
        };
        if let Some(change) = said {
            let at = at()?;
            second_hand.entry(change).and_modify(|first| *first = at.min(*first)).or_insert(at);
        }
    }
    for ((change, id), at) in second_hand {
        if !changes.iter().any(|(_, known, of, _)| known == change && *of == id) {
            changes.push((at, change.to_owned(), id, false));
        }
    }
    changes
        .into_iter()
        .filter_map(|(at, change, id, first_hand)| {
            let subject = match change.as_str() {
                "ConfChangeAddLearnerNode" => ("member-add".to_owned(), urls.get(&id)?.clone()),
                "ConfChangeAddNode" => ("member-promote".to_owned(), id),
                "ConfChangeRemoveNode" => ("member-remove".to_owned(), id),
                other => {
                    return Some(Err(format!("etcd applied {other} of {id}, which nobody here asks for")));
                }
            };
            Some(Ok(Applied { at, subject, first_hand }))
        })
        .collect()
}
