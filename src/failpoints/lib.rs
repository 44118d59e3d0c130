//! Named points around every effect, at which a test can end the process or lose a reply.
//!
//! Owns the list of effects and the reading of `ETCD_OPERATOR_FAILPOINTS`. Without the feature
//! `enabled` nothing is read and every call is empty. With it, the variable holds one or more of
//! `effect:moment` or `effect:moment@n` (the n-th time it is reached, from 1), separated by commas:
//! `create-pod:before`, `member-add:after@2`, `member-promote:lost`.
//!
//! - `before` and `after` abort the process, as a kill at that moment would.
//! - `lost` lets the effect happen and tells the caller that the answer never came.

/// Every effect that the operator has on the outside world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// POST of a Service.
    CreateService,
    /// PATCH of a Service that was edited by hand.
    RepairService,
    /// POST of a PodDisruptionBudget.
    CreateBudget,
    /// PATCH of a PodDisruptionBudget.
    PatchBudget,
    /// DELETE of a PodDisruptionBudget.
    DeleteBudget,
    /// PATCH of an EtcdCluster's status.
    ClusterStatus,
    /// POST of an EtcdMember.
    CreateMember,
    /// DELETE of an EtcdMember.
    DeleteMember,
    /// PATCH of an EtcdMember's spec or metadata.
    PatchMember,
    /// PATCH of an EtcdMember's status.
    MemberStatus,
    /// PATCH that takes our finalizer off an EtcdMember.
    ReleaseMember,
    /// PATCH of an EtcdSnapshot's or EtcdDefrag's status.
    TaskStatus,
    /// POST of a PVC.
    CreatePvc,
    /// PATCH of a PVC's labels.
    PatchPvc,
    /// DELETE of a PVC.
    DeletePvc,
    /// POST of a Pod.
    CreatePod,
    /// DELETE of a Pod.
    DeletePod,
    /// Eviction of a Pod.
    EvictPod,
    /// PATCH of a Pod's labels or annotations.
    PatchPod,
    /// etcd's MemberAdd, as learner.
    MemberAdd,
    /// etcd's MemberPromote.
    MemberPromote,
    /// etcd's MemberRemove.
    MemberRemove,
    /// etcd's MoveLeader.
    MoveLeader,
}

/// When, with respect to its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Nothing was sent yet.
    Before,
    /// It happened, and nothing that follows from it has.
    After,
    /// It happened, and the answer is lost.
    Lost,
}

impl Effect {
    /// All effects, so that a test can prove that it reached each.
    pub const ALL: [Effect; 23] = [
        Effect::CreateService,
        Effect::RepairService,
        Effect::CreateBudget,
        Effect::PatchBudget,
        Effect::DeleteBudget,
        Effect::ClusterStatus,
        Effect::CreateMember,
        Effect::DeleteMember,
        Effect::PatchMember,
        Effect::MemberStatus,
        Effect::ReleaseMember,
        Effect::TaskStatus,
        Effect::CreatePvc,
        Effect::PatchPvc,
        Effect::DeletePvc,
        Effect::CreatePod,
        Effect::DeletePod,
        Effect::EvictPod,
        Effect::PatchPod,
        Effect::MemberAdd,
        Effect::MemberPromote,
        Effect::MemberRemove,
        Effect::MoveLeader,
    ];

    /// Its name in `ETCD_OPERATOR_FAILPOINTS`, in traces and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Effect::CreateService => "create-service",
            Effect::RepairService => "repair-service",
            Effect::CreateBudget => "create-budget",
            Effect::PatchBudget => "patch-budget",
            Effect::DeleteBudget => "delete-budget",
            Effect::ClusterStatus => "cluster-status",
            Effect::CreateMember => "create-member",
            Effect::DeleteMember => "delete-member",
            Effect::PatchMember => "patch-member",
            Effect::MemberStatus => "member-status",
            Effect::ReleaseMember => "release-member",
            Effect::TaskStatus => "task-status",
            Effect::CreatePvc => "create-pvc",
            Effect::PatchPvc => "patch-pvc",
            Effect::DeletePvc => "delete-pvc",
            Effect::CreatePod => "create-pod",
            Effect::DeletePod => "delete-pod",
            Effect::EvictPod => "evict-pod",
            Effect::PatchPod => "patch-pod",
            Effect::MemberAdd => "member-add",
            Effect::MemberPromote => "member-promote",
            Effect::MemberRemove => "member-remove",
            Effect::MoveLeader => "move-leader",
        }
    }
}

impl Moment {
    /// Its name in `ETCD_OPERATOR_FAILPOINTS`.
    pub const fn name(self) -> &'static str {
        match self {
            Moment::Before => "before",
            Moment::After => "after",
            Moment::Lost => "lost",
        }
    }
}

/// Call right before the effect is sent. Aborts the process if a test asked for it.
#[inline]
pub fn before(effect: Effect) {
    if armed::hit(effect, Moment::Before) {
        armed::abort(effect, Moment::Before);
    }
}

/// Call right after the effect was answered. Aborts the process if a test asked for it.
/// Returns true when the test wants the answer to be lost: the caller then reports an ambiguous
/// outcome instead of the answer it holds.
#[inline]
#[must_use]
pub fn after(effect: Effect) -> bool {
    if armed::hit(effect, Moment::After) {
        armed::abort(effect, Moment::After);
    }
    armed::hit(effect, Moment::Lost)
}

/// Checks the variable's text, so that a typing error in a test ends the process at its start
/// instead of making the test pass without the fault.
///
/// # Errors
/// The first entry that is not `effect:moment` or `effect:moment@n`.
pub fn check_environment() -> Result<(), String> {
    armed::check()
}

#[cfg(not(feature = "enabled"))]
mod armed {
    use super::{Effect, Moment};

    #[inline]
    pub(crate) const fn hit(_: Effect, _: Moment) -> bool {
        false
    }
    #[inline]
    pub(crate) const fn abort(_: Effect, _: Moment) {}
    pub(crate) const fn check() -> Result<(), String> {
        Ok(())
    }
}

#[cfg(feature = "enabled")]
mod armed {
    use super::{Effect, Moment};
    use std::{
        collections::HashMap,
        io::Write,
        sync::{Mutex, OnceLock, PoisonError},
    };

    type Key = (&'static str, &'static str);
    static PLAN: OnceLock<Result<HashMap<Key, u64>, String>> = OnceLock::new();
    static REACHED: Mutex<Option<HashMap<Key, u64>>> = Mutex::new(None);

    fn plan() -> &'static Result<HashMap<Key, u64>, String> {
        PLAN.get_or_init(|| parse(&std::env::var("ETCD_OPERATOR_FAILPOINTS").unwrap_or_default()))
    }

    pub(crate) fn parse(text: &str) -> Result<HashMap<Key, u64>, String> {
        let entry = |entry: &str| -> Option<(Key, u64)> {
            let (point, nth) = entry.split_once('@').unwrap_or((entry, "1"));
            let (effect, moment) = point.split_once(':')?;
            let effect = Effect::ALL.into_iter().find(|e| e.name() == effect)?;
            let moment =
                [Moment::Before, Moment::After, Moment::Lost].into_iter().find(|m| m.name() == moment)?;
            Some(((effect.name(), moment.name()), nth.parse().ok().filter(|n| *n > 0)?))
        };
        text.split(',')
            .map(str::trim)
            .filter(|e| !e.is_empty())
            .map(|e| {
                entry(e).ok_or_else(|| format!("ETCD_OPERATOR_FAILPOINTS: {e:?} is not effect:moment[@n]"))
            })
            .collect()
    }

    pub(crate) fn check() -> Result<(), String> {
        plan().as_ref().map(|_| ()).map_err(Clone::clone)
    }

    pub(crate) fn hit(effect: Effect, moment: Moment) -> bool {
        let key = (effect.name(), moment.name());
        let Some(nth) = plan().as_ref().ok().and_then(|p| p.get(&key)) else { return false };
        let mut reached = REACHED.lock().unwrap_or_else(PoisonError::into_inner);
        let count = reached.get_or_insert_default().entry(key).or_default();
        *count += 1;
        *count == *nth
    }

    pub(crate) fn abort(effect: Effect, moment: Moment) {
        // The last words tell the test that it was this point and no other crash.
        let _ =
            writeln!(std::io::stderr(), "failpoint {}:{} reached, aborting", effect.name(), moment.name());
        std::process::abort();
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_effect_and_moment_can_be_named() {
            for effect in Effect::ALL {
                for moment in ["before", "after", "lost"] {
                    let plan = parse(&format!("{}:{moment}@3", effect.name())).unwrap();
                    assert_eq!(plan.get(&(effect.name(), moment)), Some(&3));
                }
            }
        }

        #[test]
        fn a_typing_error_is_refused() {
            for text in
                ["create-pods:before", "create-pod", "create-pod:never", "create-pod:before@0", "x:y@z"]
            {
                assert!(parse(text).is_err(), "{text}");
            }
        }
    }
}
