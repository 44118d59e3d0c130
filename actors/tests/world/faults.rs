//! Owns which calls of the fake world fail, and how. Decides by rules that a test sets and by
//! chance that comes from its seed. Does no I/O.

use std::time::Duration;

use etcd_operator_core::etcd::Refusal;
use etcd_operator_kubernetes::failure::ApiFailure;
use rand::{Rng, rngs::StdRng};

/// What happens to a call instead of a plain success.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The API server answers this; nothing is done.
    Api(ApiFailure),
    /// etcd answers this; nothing is done.
    Refuse(Refusal),
    /// Nothing is done, and after this long nobody knows that.
    LostRequest(Duration),
    /// It is done, and after this long nobody knows that.
    LostAnswer(Duration),
    /// After `answer` nobody knows whether it was done; at `lands` it is.
    Late {
        /// When the caller gives up.
        answer: Duration,
        /// When it is carried out. Both count from the call.
        lands: Duration,
    },
    /// It takes this long and succeeds.
    Slow(Duration),
    /// The answer never comes. Nothing is done.
    Never,
    /// The fake panics, as a bug in the caller or below it would.
    Panic,
}

/// A rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// The verbs it applies to; empty means all.
    pub(crate) verbs: Vec<&'static str>,
    /// The cluster's name; none means any.
    pub(crate) cluster: Option<String>,
    /// The member's name; none means any.
    pub(crate) member: Option<String>,
    /// How often still.
    pub(crate) times: u32,
    pub(crate) fault: Fault,
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) rules: Vec<Rule>,
    /// Out of a thousand API writes and live reads, so many fail at random.
    pub(crate) api_per_mille: u32,
    /// Out of a thousand membership calls, so many fail at random.
    pub(crate) etcd_per_mille: u32,
    /// Out of a thousand watch events, so many wake nobody.
    pub(crate) unheard_per_mille: u32,
}

impl Faults {
    /// The fault that a rule holds for this call, if one does.
    pub(crate) fn by_rule(&mut self, verb: &str, cluster: &str, member: Option<&str>) -> Option<Fault> {
        let rule = self.rules.iter_mut().find(|r| {
            r.times > 0
                && (r.verbs.is_empty() || r.verbs.contains(&verb))
                && r.cluster.as_deref().is_none_or(|c| c == cluster)
                && r.member.as_deref().is_none_or(|m| Some(m) == member)
        })?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }

    pub(crate) fn api(&mut self, rng: &mut StdRng) -> Option<Fault> {
        if rng.random_range(0..1000) >= self.api_per_mille {
            return None;
        }
        let wait = Duration::from_millis(rng.random_range(1..10_000));
        Some(match rng.random_range(0..6) {
            0 => Fault::Api(ApiFailure::Conflict("somebody else wrote".into())),
            1 => Fault::Api(ApiFailure::Throttled { retry_after: None }),
            2 => Fault::Api(ApiFailure::Unreachable("connection refused".into())),
            3 => Fault::LostRequest(wait),
            4 => Fault::LostAnswer(wait),
            _ => Fault::Late { answer: wait, lands: Duration::from_millis(rng.random_range(1..10_000)) },
        })
    }

    pub(crate) fn etcd(&mut self, rng: &mut StdRng) -> Option<Fault> {
        if rng.random_range(0..1000) >= self.etcd_per_mille {
            return None;
        }
        let answer = Duration::from_millis(rng.random_range(1..8_000));
        Some(match rng.random_range(0..4) {
            0 => Fault::Refuse(Refusal::UnhealthyCluster),
            1 => Fault::LostRequest(answer),
            2 => Fault::LostAnswer(answer),
            // etcd gives up on a proposal 7 s after it took it in.
            _ => Fault::Late { answer, lands: Duration::from_millis(rng.random_range(1..7_000)) },
        })
    }

    pub(crate) fn is_unheard(&self, rng: &mut StdRng) -> bool {
        rng.random_range(0..1000) < self.unheard_per_mille
    }
}
