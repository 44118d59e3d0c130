//! What [`EtcdOptions`] may say: the bounds of each number, and where each comes from. Pure.
//!
//! The CRD has the same bounds and refuses most mistakes; here is what was stored under an older CRD.
//! etcd ends at once on a number that it does not take, so a wrong one would stop each new member.

use std::ops::RangeInclusive;

use crate::EtcdOptions;

/// Milliseconds. etcd refuses 0, and an election timeout below five heartbeats or above 50 s.
const HEARTBEAT_MS: RangeInclusive<i64> = 1..=ELECTION_MS_MAX / HEARTBEATS;
/// Milliseconds. etcd's own limits: `embed.Config.Validate`, the same in 3.5, 3.6 and 3.7.
const ELECTION_MS: RangeInclusive<i64> = HEARTBEATS..=ELECTION_MS_MAX;
const ELECTION_MS_MAX: i64 = 50_000;
/// So many heartbeats fit into an election timeout, or etcd does not start.
const HEARTBEATS: i64 = 5;
/// etcd's defaults, in milliseconds.
const DEFAULT_HEARTBEAT_MS: i64 = 100;
const DEFAULT_ELECTION_MS: i64 = 1_000;
/// Bytes. etcd itself warns above 10 MiB: one such entry keeps heartbeats and everybody else waiting. The
/// limit holds for etcd's own entries too, such as a member's addresses, which 16 KiB leave room for.
const REQUEST_BYTES: RangeInclusive<i64> = 16 << 10..=10 << 20;
/// 65536 puts of 24 bytes each fill etcd's default request of 1.5 MiB; more cannot arrive in one.
const TXN_OPS: RangeInclusive<i64> = 1..=65_536;
/// etcd reads 0 as "keep all", which fills the volume; 100 write-ahead logs of 64 MB are 6.4 GB.
const FILES: RangeInclusive<i64> = 1..=100;

/// The fields that cannot work, each with a sentence that says why and what to do.
pub(crate) fn invalid(options: &EtcdOptions) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut bounds = |field, value: Option<i64>, range: &RangeInclusive<i64>| {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let (min, max) = (range.start(), range.end());
            found.push((field, format!("{value} is out of bounds; choose {min} to {max}")));
        }
    };
    let (heartbeat, election) =
        (options.heartbeat_interval_ms.map(i64::from), options.election_timeout_ms.map(i64::from));
    bounds("spec.options.heartbeatIntervalMs", heartbeat, &HEARTBEAT_MS);
    bounds("spec.options.electionTimeoutMs", election, &ELECTION_MS);
    bounds("spec.options.maxRequestBytes", options.max_request_bytes, &REQUEST_BYTES);
    bounds("spec.options.maxTxnOps", options.max_txn_ops.map(i64::from), &TXN_OPS);
    bounds("spec.options.maxSnapshots", options.max_snapshots.map(i64::from), &FILES);
    bounds("spec.options.maxWals", options.max_wals.map(i64::from), &FILES);
    let (heartbeat, election) =
        (heartbeat.unwrap_or(DEFAULT_HEARTBEAT_MS), election.unwrap_or(DEFAULT_ELECTION_MS));
    // Both come from 32 bits, so that the product fits.
    if HEARTBEATS * heartbeat > election {
        let why = format!(
            "an election timeout of {election} ms is less than 5 heartbeats of {heartbeat} ms; set electionTimeoutMs to {} or more",
            HEARTBEATS * heartbeat
        );
        found.push(("spec.options.electionTimeoutMs", why));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fields(options: Value) -> Vec<&'static str> {
        let options: EtcdOptions = serde_json::from_value(options).unwrap();
        invalid(&options).into_iter().map(|(field, _)| field).collect()
    }

    #[test]
    fn every_number_is_refused_just_beyond_its_bounds_and_taken_at_them() {
        for (field, min, max) in [
            ("maxRequestBytes", 16_384, 10_485_760),
            ("maxTxnOps", 1, 65_536),
            ("maxSnapshots", 1, 100),
            ("maxWals", 1, 100),
        ] {
            for good in [min, max] {
                assert_eq!(fields(json!({ field: good })), [""; 0], "{field} {good}");
            }
            for bad in [min - 1, max + 1, 0, -1] {
                assert_eq!(fields(json!({ field: bad })), [format!("spec.options.{field}")], "{field} {bad}");
            }
        }
        let most = json!({"heartbeatIntervalMs": 10_000, "electionTimeoutMs": 50_000});
        assert_eq!(fields(most), [""; 0]);
        assert_eq!(fields(json!({"electionTimeoutMs": 50_001})), ["spec.options.electionTimeoutMs"]);
        assert_eq!(fields(json!({"heartbeatIntervalMs": 0})), ["spec.options.heartbeatIntervalMs"]);
    }

    #[test]
    fn an_election_timeout_is_five_heartbeats_also_where_one_of_them_is_etcds_default() {
        let both =
            |heartbeat, election| json!({"heartbeatIntervalMs": heartbeat, "electionTimeoutMs": election});
        assert_eq!(fields(both(100, 500)), [""; 0]);
        assert_eq!(fields(both(1, 5)), [""; 0]);
        assert_eq!(fields(both(100, 499)), ["spec.options.electionTimeoutMs"]);
        assert_eq!(fields(json!({"electionTimeoutMs": 500})), [""; 0]);
        assert_eq!(fields(json!({"electionTimeoutMs": 499})), ["spec.options.electionTimeoutMs"]);
        assert_eq!(fields(json!({"heartbeatIntervalMs": 200})), [""; 0]);
        assert_eq!(fields(json!({"heartbeatIntervalMs": 201})), ["spec.options.electionTimeoutMs"]);
        let extreme = fields(both(i32::MAX, i32::MIN));
        assert!(extreme.contains(&"spec.options.electionTimeoutMs"), "{extreme:?}");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        let options: EtcdOptions =
            serde_json::from_value(json!({"maxWals": 0, "electionTimeoutMs": 7})).unwrap();
        for (field, why) in invalid(&options) {
            assert!(why.contains("; choose ") || why.contains("; set "), "{field}: {why}");
        }
    }
}
