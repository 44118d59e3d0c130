//! Translates the record of a recovery between core and the EtcdCluster's status. Pure.

use etcd_operator_api::{RecoveryPhase, RecoveryStatus, RefusedRecovery};
use etcd_operator_core::recovery::{Phase, Recovery, RefusedRequest};

use crate::{status::timestamp, view::time};

/// What the status records.
pub(crate) fn recorded(status: &RecoveryStatus) -> Recovery {
    let number = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
    Recovery {
        request: status.request.clone(),
        survivor: status.survivor.clone().into(),
        phase: match status.phase {
            RecoveryPhase::Fencing => Phase::Fencing,
            RecoveryPhase::Rewriting => Phase::Rewriting,
            RecoveryPhase::Returning => Phase::Returning,
            RecoveryPhase::Recovered => Phase::Recovered,
            RecoveryPhase::Cancelled => Phase::Cancelled,
        },
        reached: number(status.term).zip(number(status.index)),
        others: status.others.iter().cloned().map(Into::into).collect(),
        begun: time(&status.begun),
        ended: status.ended.as_ref().map(time),
    }
}

/// The status of a recovery.
pub(crate) fn status(recovery: &Recovery) -> RecoveryStatus {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    RecoveryStatus {
        request: recovery.request.clone(),
        survivor: recovery.survivor.to_string(),
        phase: match recovery.phase {
            Phase::Fencing => RecoveryPhase::Fencing,
            Phase::Rewriting => RecoveryPhase::Rewriting,
            Phase::Returning => RecoveryPhase::Returning,
            Phase::Recovered => RecoveryPhase::Recovered,
            Phase::Cancelled => RecoveryPhase::Cancelled,
        },
        term: recovery.reached.map(|(term, _)| number(term)),
        index: recovery.reached.map(|(_, index)| number(index)),
        others: recovery.others.iter().map(ToString::to_string).collect(),
        begun: timestamp(recovery.begun),
        ended: recovery.ended.map(timestamp),
    }
}

/// The refused request that the status records.
pub(crate) fn refused(status: &RefusedRecovery) -> RefusedRequest {
    RefusedRequest { request: status.request.clone(), why: status.why.clone() }
}

/// The status of a refused request.
pub(crate) fn refused_status(refused: &RefusedRequest) -> RefusedRecovery {
    RefusedRecovery { request: refused.request.clone(), why: refused.why.clone() }
}
