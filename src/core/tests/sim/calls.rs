//! The writes to the simulated API server, by name. Owns no state.

use etcd_operator_core::{
    ids::Uid,
    roll::{Blueprint, Permit},
    view::{ClusterRecord, JoinInstruction, MemberRecord, ServiceKind},
};

use super::kube::M;

/// One write to the API server, with the preconditions that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiCall {
    Status {
        rv: u64,
        record: Box<ClusterRecord>,
        conditions: u64,
    },
    PutService(ServiceKind),
    /// A create without a version, else a patch.
    PutBudget {
        rv: Option<u64>,
        floor: usize,
    },
    DeleteBudget {
        rv: u64,
    },
    CreateMember {
        seed: bool,
    },
    DeleteMember {
        m: M,
        rv: u64,
    },
    Update {
        m: M,
        rv: u64,
        blueprint: Blueprint,
        permit: Option<Permit>,
    },
    ClearPermit {
        m: M,
        rv: u64,
    },
    Dormant {
        m: M,
        rv: u64,
        dormant: bool,
    },
    RecordJoin {
        m: M,
        rv: u64,
        initial_cluster: String,
    },
    Record {
        m: M,
        rv: u64,
        record: MemberRecord,
    },
    Release {
        m: M,
        rv: u64,
    },
    CreatePvc {
        m: M,
    },
    PatchPvc {
        m: M,
        uid: Uid,
    },
    DeletePvc {
        m: M,
        uid: Uid,
    },
    CreatePod {
        m: M,
        instruction: JoinInstruction,
        generation: u64,
        blueprint: Blueprint,
    },
    CreateRecoveryPod {
        m: M,
        instruction: JoinInstruction,
        blueprint: Blueprint,
    },
    DeletePod {
        m: M,
        uid: Uid,
    },
    EvictPod {
        m: M,
        uid: Uid,
    },
    PatchPod {
        m: M,
        rv: u64,
        instruction: JoinInstruction,
        voter_label: bool,
    },
}

impl ApiCall {
    /// Its name, for coverage.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ApiCall::Status { .. } => "ClusterStatus",
            ApiCall::PutService(_) => "PutService",
            ApiCall::PutBudget { .. } => "PutBudget",
            ApiCall::DeleteBudget { .. } => "DeleteBudget",
            ApiCall::CreateMember { .. } => "CreateMember",
            ApiCall::DeleteMember { .. } => "DeleteMember",
            ApiCall::Update { permit: None, .. } => "UpdateMember",
            ApiCall::Update { permit: Some(_), .. } => "RollMember",
            ApiCall::ClearPermit { .. } => "ClearPermit",
            ApiCall::Dormant { dormant: true, .. } => "ParkMember",
            ApiCall::Dormant { dormant: false, .. } => "WakeMember",
            ApiCall::RecordJoin { .. } => "PatchMember",
            ApiCall::Record { .. } => "MemberStatus",
            ApiCall::Release { .. } => "ReleaseMember",
            ApiCall::CreatePvc { .. } => "CreatePvc",
            ApiCall::PatchPvc { .. } => "PatchPvc",
            ApiCall::DeletePvc { .. } => "DeletePvc",
            ApiCall::CreatePod { .. } => "CreatePod",
            ApiCall::CreateRecoveryPod { .. } => "CreateRecoveryPod",
            ApiCall::DeletePod { .. } => "DeletePod",
            ApiCall::EvictPod { .. } => "EvictPod",
            ApiCall::PatchPod { .. } => "PatchPod",
        }
    }

    /// All names.
    pub(crate) const NAMES: [&'static str; 22] = [
        "ClusterStatus",
        "PutService",
        "PutBudget",
        "DeleteBudget",
        "CreateMember",
        "DeleteMember",
        "UpdateMember",
        "RollMember",
        "ClearPermit",
        "EvictPod",
        "ParkMember",
        "WakeMember",
        "PatchMember",
        "MemberStatus",
        "ReleaseMember",
        "CreatePvc",
        "PatchPvc",
        "DeletePvc",
        "CreatePod",
        "CreateRecoveryPod",
        "DeletePod",
        "PatchPod",
    ];
}
