//! What the spec of each cluster should say, and edits of it. Pure.

use serde_json::{Value, json};

/// What etcd goes through, one minor after the other: the versions that the testbed has.
pub(crate) const LADDER: [&str; 3] = ["3.5.35", "3.6.16", "3.7.3"];

/// Where the three clusters begin. Each goes up once: etcd 3.7 cannot read what 3.5 has written into the log, and that
/// is there until 3.6 has made a snapshot, after more writes than a cluster may have had when its next turn comes.
const FIRST_RUNGS: [usize; 3] = [1, 0, 0];
/// How many members each has at first.
const FIRST_SIZES: [i32; 3] = [3, 1, 3];

/// The label and the annotation that edits change.
pub(crate) const KEY: &str = "chaos.example.com/edit";

/// What the spec of a cluster should say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    /// How many members it should have.
    pub(crate) replicas: i32,
    /// Whether a person restarts members for a changed spec.
    pub(crate) on_delete: bool,
    /// Whether Pods may have been made from an older spec by right: what changed under OnDelete reaches a Pod when that is
    /// made anew, and all of them with the next edit that the operator rolls.
    pub(crate) waits: bool,
    rung: usize,
    goes_up: bool,
    cpu: Option<u32>,
    files: Option<u32>,
    mark: Option<u32>,
}

/// An edit of a spec. Numbers are never used twice, so that no edit takes back an earlier one unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    /// So many thousandths of a CPU are requested. Needs other Pods.
    Resources(u32),
    /// So many files are kept, and other tuning. Needs other Pods.
    Tuning(u32),
    /// A label and an annotation have this value. Reaches objects in place.
    Metadata(u32),
    /// Who restarts members: a person, or else the operator.
    Strategy {
        /// A person.
        on_delete: bool,
    },
    /// The version at this place of the ladder, which the operator rolls. Needs other Pods.
    Version(usize),
}

impl Edit {
    /// As a merge patch of the spec.
    pub(crate) fn patch(self) -> Value {
        match self {
            Edit::Resources(cpu) => json!({"resources": resources(cpu)}),
            Edit::Tuning(files) => json!({"options": options(files)}),
            Edit::Metadata(mark) => json!({"additionalMetadata": metadata(mark)}),
            Edit::Strategy { on_delete } => json!({"updateStrategy": strategy(on_delete)}),
            Edit::Version(rung) => json!({"version": LADDER[rung], "updateStrategy": strategy(false)}),
        }
    }

    /// Whether only other Pods bring it about.
    pub(crate) fn needs_pods(self) -> bool {
        matches!(self, Edit::Resources(_) | Edit::Tuning(_) | Edit::Version(_))
    }
}

impl Spec {
    /// That of the cluster with this number, as it is created.
    pub(crate) fn first(cluster: usize) -> Self {
        Self {
            replicas: FIRST_SIZES[cluster],
            on_delete: false,
            waits: false,
            rung: FIRST_RUNGS[cluster],
            goes_up: true,
            cpu: None,
            files: None,
            mark: None,
        }
    }

    /// The version of etcd.
    pub(crate) fn version(&self) -> &'static str {
        LADDER[self.rung]
    }

    /// The edit that takes it to the next minor, if it has not been there.
    pub(crate) fn upgrade(&self) -> Option<Edit> {
        (self.goes_up && self.rung + 1 < LADDER.len()).then_some(Edit::Version(self.rung + 1))
    }

    /// What it says after this edit.
    pub(crate) fn edited(&mut self, edit: Edit) {
        match edit {
            Edit::Resources(cpu) => self.cpu = Some(cpu),
            Edit::Tuning(files) => self.files = Some(files),
            Edit::Metadata(mark) => self.mark = Some(mark),
            Edit::Strategy { on_delete } => {
                self.on_delete = on_delete;
                // An edit that is being rolled stops where it is.
                self.waits |= on_delete;
            }
            Edit::Version(rung) => (self.rung, self.goes_up, self.on_delete) = (rung, false, false),
        }
        if edit.needs_pods() {
            self.waits = self.on_delete;
        }
    }

    /// All of it that edits may have changed.
    pub(crate) fn wanted(&self) -> Value {
        let mut all = json!({"replicas": self.replicas, "version": self.version()});
        let parts = [
            ("resources", self.cpu.map(resources)),
            ("options", self.files.map(options)),
            ("additionalMetadata", self.mark.map(metadata)),
            ("updateStrategy", self.on_delete.then(|| strategy(true))),
        ];
        for (key, value) in parts {
            if let Some(value) = value {
                all[key] = value;
            }
        }
        all
    }
}

fn resources(cpu: u32) -> Value {
    json!({"requests": {"cpu": format!("{cpu}m"), "memory": "96Mi"}})
}

/// Nothing that is tuned here changes what etcd promises. The log level stays at info, in words or by default: with less
/// the log would not tell which changes etcd applied, and with more the kubelet would cut it off before it is read.
fn options(files: u32) -> Value {
    let (level, detail) = if files.is_multiple_of(2) { (Some("info"), "extensive") } else { (None, "basic") };
    json!({"maxWals": files, "maxSnapshots": files, "logLevel": level, "metrics": detail})
}

fn metadata(mark: u32) -> Value {
    json!({"labels": {KEY: format!("v{mark}")}, "annotations": {KEY: format!("edit {mark}")}})
}

fn strategy(on_delete: bool) -> Value {
    json!({"type": if on_delete { "OnDelete" } else { "RollingUpdate" }})
}
