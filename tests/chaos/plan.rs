//! What is done in each round, drawn from the seed. Knows nothing of the clusters but what the spec of each should say:
//! who exactly is hit is found out when it happens. Pure.
//!
//! In the first two rounds a seed loses its data, once in each way: two clusters still have theirs and bear the loss, which
//! later nobody can be sure of. Then every second round has a theme. They come in an order of their own until each was
//! there, so that no run of some length goes without one. The other rounds are whatever the seed says.

use std::fmt::Write as _;
use std::time::Duration;

use etcd_operator_failpoints::{Effect, Moment};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};

use crate::blows::{Blow, Fault, Lasting, Trouble, Who};
use crate::spec::{Edit, Spec};

/// The three clusters. No name begins with another: that is how their Pods and log lines are told apart.
pub(crate) const CLUSTERS: [&str; 3] = ["red", "green", "blue"];

/// The sizes that are asked for.
const SIZES: [i32; 5] = [1, 2, 3, 4, 5];
/// At least one cluster has a quorum that outlives a member.
const TOLERANT: i32 = 3;
/// Numbers for edits: etcd keeps at most 100 files of a kind, and with fewer than these a slow member may be cut off.
const FIRST_EDIT: u32 = 10;
/// How many edits have a number of their own before the first one comes again.
const EDITS: u32 = 90;

/// One round: faults, and the pause before each.
pub(crate) type Round = Vec<(Duration, Fault)>;

/// What a round is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Wiped,
    VolumeDeleted,
    VolumeLost,
    Drained,
    Edited,
    Rolled,
    Upgraded,
    Paused,
}

/// All of them, and twice what is hard.
const THEMES: [Theme; 11] = [
    Theme::Wiped,
    Theme::Wiped,
    Theme::VolumeDeleted,
    Theme::VolumeLost,
    Theme::Drained,
    Theme::Drained,
    Theme::Edited,
    Theme::Rolled,
    Theme::Rolled,
    Theme::Upgraded,
    Theme::Paused,
];

/// What a roll does to the world, beside which an operator may end.
const ROLLING: [Effect; 6] = [
    Effect::PatchMember,
    Effect::EvictPod,
    Effect::CreatePod,
    Effect::PatchPod,
    Effect::MoveLeader,
    Effect::MemberStatus,
];

/// Draws the rounds.
pub(crate) struct Plan {
    random: StdRng,
    /// What the spec of each cluster should say.
    pub(crate) wanted: [Spec; 3],
    /// Themes that are to come, the next one last.
    themes: Vec<Theme>,
    rounds: usize,
    edits: u32,
    /// How the seeds lose their data, the next one last.
    opening: Vec<Blow>,
    /// The cluster that goes to another version in this round, which no other edit may stop.
    moving: Option<usize>,
}

impl Plan {
    /// The plan of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut opening = vec![Blow::DataWiped(Who::Seed), Blow::VolumeDeleted(Who::Seed)];
        opening.shuffle(&mut random);
        Self {
            random,
            opening,
            wanted: [0, 1, 2].map(Spec::first),
            themes: Vec::new(),
            rounds: 0,
            edits: 0,
            moving: None,
        }
    }

    /// The next round.
    pub(crate) fn round(&mut self) -> Round {
        self.rounds += 1;
        self.moving = None;
        let faults = if let Some(blow) = self.opening.pop() {
            let blow = Fault::Blow(self.tolerant(), blow);
            self.destroyed(blow)
        } else if self.rounds.is_multiple_of(2) {
            self.anything()
        } else {
            self.theme()
        };
        faults.into_iter().map(|fault| (self.pause(), fault)).collect()
    }

    fn theme(&mut self) -> Vec<Fault> {
        if self.themes.is_empty() {
            self.themes = THEMES.to_vec();
            self.themes.shuffle(&mut self.random);
        }
        let theme = self.themes.pop().unwrap_or(Theme::Edited);
        let cluster = self.number(3);
        match theme {
            // A person's part in it takes as long as Kubernetes does, and nothing is looked after meanwhile.
            Theme::VolumeLost => {
                let blow = Blow::VolumeLost(self.number(60));
                vec![Fault::Blow(self.tolerant(), blow)]
            }
            Theme::Wiped => {
                let who = self.who();
                let blow = Fault::Blow(self.tolerant(), Blow::DataWiped(who));
                self.destroyed(blow)
            }
            Theme::VolumeDeleted => {
                let who = self.who();
                let blow = Fault::Blow(self.tolerant(), Blow::VolumeDeleted(who));
                self.destroyed(blow)
            }
            Theme::Drained => {
                let drain = Fault::Lasting(Lasting::Drained(self.number(3)), self.millis(5_000, 60_000));
                let mut faults = vec![drain];
                if self.one_in(3) {
                    let trouble = self.trouble();
                    faults.push(Fault::Trouble(trouble));
                }
                if self.one_in(3) {
                    faults.push(self.work());
                }
                faults
            }
            Theme::Edited => (0..1 + self.number(3))
                .map(|_| {
                    let cluster = self.number(3);
                    let edit = self.edit(cluster);
                    self.edited(cluster, edit)
                })
                .collect(),
            Theme::Rolled => {
                let cluster = if self.one_in(4) { cluster } else { self.tolerant() };
                self.rolled(cluster)
            }
            Theme::Upgraded => self.upgraded(),
            Theme::Paused => {
                let pause = Fault::Lasting(Lasting::Paused(cluster), self.millis(1_000, 60_000));
                let mut faults = vec![pause];
                if self.one_in(2) {
                    let more = if self.one_in(2) { Fault::Trouble(self.trouble()) } else { self.work() };
                    faults.push(more);
                }
                faults
            }
        }
    }

    /// What happens around a blow that destroys data: before it only what happens to the operator.
    fn destroyed(&mut self, blow: Fault) -> Vec<Fault> {
        let seeds =
            matches!(blow, Fault::Blow(_, Blow::DataWiped(Who::Seed) | Blow::VolumeDeleted(Who::Seed)));
        let mut faults = vec![blow];
        if self.one_in(2) {
            let trouble = self.trouble();
            let first = matches!(trouble, Trouble::Failpoints(_) | Trouble::Frozen(_));
            faults.insert(usize::from(!first), Fault::Trouble(trouble));
        }
        match self.number(6) {
            // The other seed is still to come, and its cluster is to keep its size until then.
            _ if seeds => {}
            0..=1 => faults.push(self.work()),
            2 => faults.push(self.lasting()),
            _ => {}
        }
        faults
    }

    /// An edit that needs other Pods, and an operator that ends in the middle of it.
    fn rolled(&mut self, cluster: usize) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.wanted[cluster].on_delete {
            faults.push(self.edited(cluster, Edit::Strategy { on_delete: false }));
        }
        let (number, resources) = (self.fresh(), self.one_in(2));
        let edit = if resources { Edit::Resources(number) } else { Edit::Tuning(number) };
        faults.push(self.edited(cluster, edit));
        let trouble = self.in_the_middle();
        let first = matches!(trouble, Trouble::Failpoints(_));
        faults.insert(if first { 0 } else { faults.len() }, Fault::Trouble(trouble));
        faults
    }

    /// A step to the next minor, or a roll when every cluster has had its own.
    fn upgraded(&mut self) -> Vec<Fault> {
        let steps = (0..3).filter_map(|n| Some((n, self.wanted[n].upgrade()?)));
        let steps: Vec<(usize, Edit)> = steps.collect();
        let Some(&(cluster, step)) = steps.choose(&mut self.random) else {
            let cluster = self.tolerant();
            return self.rolled(cluster);
        };
        self.moving = Some(cluster);
        let mut faults = vec![self.edited(cluster, step)];
        if self.one_in(2) {
            let trouble = self.in_the_middle();
            let first = matches!(trouble, Trouble::Failpoints(_));
            faults.insert(usize::from(!first), Fault::Trouble(trouble));
        }
        if self.one_in(3) {
            faults.push(self.work());
        }
        faults
    }

    /// The operator ends while it rolls.
    fn in_the_middle(&mut self) -> Trouble {
        if self.one_in(2) {
            return Trouble::Killed { same: !self.one_in(4) };
        }
        let mut points = self.failpoints();
        let effect = ROLLING.choose(&mut self.random).copied().unwrap_or(Effect::EvictPod);
        let moment = if self.one_in(2) { Moment::Before } else { Moment::After };
        points.insert(0, format!("{}:{}", effect.name(), moment.name()));
        Trouble::Failpoints(points)
    }

    fn anything(&mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.one_in(3) {
            let trouble = self.trouble();
            // A point is only reached by an operator that has something to do.
            let idle =
                !matches!(trouble, Trouble::Killed { .. } | Trouble::Failpoints(_) | Trouble::Frozen(_));
            let first = matches!(trouble, Trouble::Failpoints(_) | Trouble::Frozen(_)) || self.one_in(2);
            faults.push(Fault::Trouble(trouble));
            if !idle || self.one_in(2) {
                let work = self.work();
                faults.insert(usize::from(first), work);
            }
        }
        let more = if faults.is_empty() { 1 } else { 0 } + self.number(3).saturating_sub(self.number(2));
        for _ in 0..more {
            let lasts = faults.iter().any(|f| matches!(f, Fault::Lasting(..)));
            let fault = if !lasts && self.one_in(3) { self.lasting() } else { self.work() };
            faults.push(fault);
        }
        faults
    }

    fn number(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.number(n) == 0
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..to))
    }

    /// Often in the middle of what the fault before it has begun.
    fn pause(&mut self) -> Duration {
        if self.one_in(3) { self.millis(0, 400) } else { self.millis(400, 6_000) }
    }

    fn who(&mut self) -> Who {
        if self.one_in(3) { Who::Leader } else { Who::Nth(self.number(60)) }
    }

    /// A cluster that bears the loss of a member.
    fn tolerant(&mut self) -> usize {
        let able: Vec<usize> = (0..3).filter(|n| self.wanted[*n].replicas >= TOLERANT).collect();
        able.choose(&mut self.random).copied().unwrap_or_default()
    }

    /// Another size for this cluster, such that one of the three is tolerant.
    fn size(&mut self, cluster: usize) -> i32 {
        let others = (0..3).any(|n| n != cluster && self.wanted[n].replicas >= TOLERANT);
        let now = self.wanted[cluster].replicas;
        let able: Vec<i32> = SIZES.into_iter().filter(|n| *n != now && (others || *n >= TOLERANT)).collect();
        let size = able.choose(&mut self.random).copied().unwrap_or(now);
        self.wanted[cluster].replicas = size;
        size
    }

    /// A number that no edit had before.
    fn fresh(&mut self) -> u32 {
        self.edits += 1;
        FIRST_EDIT + self.edits % EDITS
    }

    /// An edit of this cluster's spec. One that goes to another version is left to the operator, or it would not arrive.
    fn edit(&mut self, cluster: usize) -> Edit {
        let number = self.fresh();
        match self.number(if self.moving == Some(cluster) { 7 } else { 9 }) {
            0..=1 => Edit::Resources(number),
            2..=3 => Edit::Tuning(number),
            4..=6 => Edit::Metadata(number),
            _ => Edit::Strategy { on_delete: !self.wanted[cluster].on_delete },
        }
    }

    fn edited(&mut self, cluster: usize, edit: Edit) -> Fault {
        self.wanted[cluster].edited(edit);
        Fault::Blow(cluster, Blow::Edited(edit))
    }

    fn work(&mut self) -> Fault {
        let cluster = self.number(3);
        let client = self.one_in(2);
        let blow = match self.number(25) {
            0..=4 => Blow::Scaled(self.size(cluster)),
            5..=6 => {
                let (first, after) = (self.size(cluster), self.millis(50, 1_000));
                Blow::MindChanged(first, after, self.size(cluster))
            }
            7..=9 => Blow::MemberDeleted(self.who()),
            10..=11 => Blow::TwoMembersDeleted(self.number(60)),
            12..=13 => Blow::PodDeleted(self.who()),
            14 => Blow::PodEvicted(self.who()),
            15 => Blow::AllPodsDeleted,
            16..=17 => Blow::ContainerKilled(self.who()),
            18 => Blow::ServiceEdited { client },
            19 => Blow::ServiceDeleted { client },
            20..=22 => {
                let edit = self.edit(cluster);
                return self.edited(cluster, edit);
            }
            _ => Blow::LabelsStripped(self.who()),
        };
        Fault::Blow(cluster, blow)
    }

    fn lasting(&mut self) -> Fault {
        let (cluster, who, node) = (self.number(3), self.who(), self.number(3));
        // Short ones end before anybody has noticed, long ones after everybody has drawn conclusions.
        let (lasting, from, to) = match self.number(11) {
            0..=2 => (Lasting::CutOff(cluster, Who::Leader), 1_000, 30_000),
            3 => (Lasting::CutOff(cluster, who), 1_000, 30_000),
            4 => (Lasting::StandsStill(cluster, who), 1_000, 30_000),
            5..=6 => (Lasting::NodeLost(node), 1_000, 75_000),
            7 => (Lasting::KubeletLost(node), 1_000, 75_000),
            8 => (Lasting::Drained(node), 1_000, 60_000),
            9 => (Lasting::Paused(cluster), 1_000, 30_000),
            _ => (Lasting::OperatorCutOff, 1_000, 30_000),
        };
        Fault::Lasting(lasting, self.millis(from, to))
    }

    fn trouble(&mut self) -> Trouble {
        match self.number(8) {
            0..=1 => Trouble::Killed { same: !self.one_in(3) },
            2..=5 => Trouble::Failpoints(self.failpoints()),
            6 => Trouble::Frozen(self.millis(0, 8_000)),
            _ => Trouble::HandsOver,
        }
    }

    fn failpoints(&mut self) -> Vec<String> {
        (0..1 + self.number(3))
            .map(|_| {
                // Nothing here makes an EtcdSnapshot or EtcdDefrag.
                let effects: Vec<_> = Effect::ALL.into_iter().filter(|e| *e != Effect::TaskStatus).collect();
                let effect = effects.choose(&mut self.random).copied().unwrap_or(Effect::MemberAdd);
                let moments = [Moment::Before, Moment::After, Moment::Lost];
                let moment = moments.choose(&mut self.random).copied().unwrap_or(Moment::Lost);
                let mut point = format!("{}:{}", effect.name(), moment.name());
                if self.one_in(3) {
                    let _ = write!(point, "@{}", 2 + self.number(2));
                }
                point
            })
            .collect()
    }
}
