//! What is done in each round, drawn from the seed. Knows nothing of the clusters but how many members each should
//! have: who exactly is hit is found out when it happens. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use etcd_operator_failpoints::{Effect, Moment};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// The three clusters. No name begins with another: that is how their Pods and log lines are told apart.
pub(crate) const CLUSTERS: [&str; 3] = ["red", "green", "blue"];

/// How many members each has at first.
const FIRST: [i32; 3] = [3, 1, 2];
/// The sizes that are asked for.
const SIZES: [i32; 5] = [1, 2, 3, 4, 5];
/// At least one cluster has a quorum that outlives a member.
const TOLERANT: i32 = 3;

/// One member of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The leader.
    Leader,
    /// The n-th by name, counted round and round.
    Nth(usize),
}

/// Something that happens to one cluster at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The number of members is changed.
    Scaled(i32),
    /// The same, and after a moment another one.
    MindChanged(i32, Duration, i32),
    /// An EtcdMember is deleted.
    MemberDeleted(Who),
    /// Two EtcdMembers are deleted in the same second, one of them the leader's.
    TwoMembersDeleted(usize),
    /// A Pod is deleted.
    PodDeleted(Who),
    /// A Pod is evicted.
    PodEvicted(Who),
    /// Every Pod is deleted at once.
    AllPodsDeleted,
    /// A container is killed.
    ContainerKilled(Who),
    /// A person gives a Service another selector and other ports.
    ServiceEdited {
        /// The client Service, or the headless one.
        client: bool,
    },
    /// A Service is deleted.
    ServiceDeleted {
        /// The client Service, or the headless one.
        client: bool,
    },
    /// The labels that selectors and adoption stand on are taken off a Pod, its volume, and the Services.
    LabelsStripped(Who),
    /// A volume is deleted with its Pod, and then a person deletes the EtcdMember.
    VolumeLost(usize),
}

/// Something that lasts, and then ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// No other Pod reaches this member, and it reaches none.
    CutOff(usize, Who),
    /// This member's process stands still.
    StandsStill(usize, Who),
    /// A node of the three loses its power.
    NodeLost(usize),
    /// A node's kubelet does not run; its containers go on.
    KubeletLost(usize),
    /// Packets between the operator and the API server are lost.
    OperatorCutOff,
}

/// Something that happens to the operator. At most one in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is killed and comes back.
    Killed {
        /// As the same Pod, which resumes its Lease, or as another one, which has to wait for it.
        same: bool,
    },
    /// It ends at the first of these points, in its next life at the next one; those with `lost` only lose an answer.
    Failpoints(Vec<String>),
    /// It stands still until a second operator has taken its Lease, and then for this long.
    Frozen(Duration),
    /// It is asked to end while a second one waits.
    HandsOver,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// To the cluster with this number.
    Blow(usize, Blow),
    /// For this long.
    Lasting(Lasting, Duration),
    /// To the operator.
    Trouble(Trouble),
}

impl Fault {
    /// What the summary counts it as.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Fault::Blow(_, blow) => match blow {
                Blow::Scaled(_) => "scaled",
                Blow::MindChanged(..) => "scaled, and a change of mind",
                Blow::MemberDeleted(Who::Leader) => "leader's EtcdMember deleted",
                Blow::MemberDeleted(_) => "EtcdMember deleted",
                Blow::TwoMembersDeleted(_) => "two EtcdMembers deleted",
                Blow::PodDeleted(Who::Leader) => "leader's Pod deleted",
                Blow::PodDeleted(_) => "Pod deleted",
                Blow::PodEvicted(_) => "Pod evicted",
                Blow::AllPodsDeleted => "all Pods of a cluster deleted",
                Blow::ContainerKilled(Who::Leader) => "leader's container killed",
                Blow::ContainerKilled(_) => "container killed",
                Blow::ServiceEdited { .. } => "Service edited",
                Blow::ServiceDeleted { .. } => "Service deleted",
                Blow::LabelsStripped(_) => "labels stripped",
                Blow::VolumeLost(_) => "volume lost, member replaced",
            },
            Fault::Lasting(lasting, _) => match lasting {
                Lasting::CutOff(_, Who::Leader) => "leader cut off from its peers",
                Lasting::CutOff(..) => "member cut off from its peers",
                Lasting::StandsStill(_, Who::Leader) => "leader stands still",
                Lasting::StandsStill(..) => "member stands still",
                Lasting::NodeLost(_) => "node lost",
                Lasting::KubeletLost(_) => "kubelet lost",
                Lasting::OperatorCutOff => "operator cut off from the API server",
            },
            Fault::Trouble(trouble) => match trouble {
                Trouble::Killed { .. } => "operator killed",
                Trouble::Failpoints(_) => "operator at failpoints",
                Trouble::Frozen(_) => "operator frozen until another has its Lease",
                Trouble::HandsOver => "operator hands over",
            },
        }
    }
}

/// One round: faults, and the pause before each.
pub(crate) type Round = Vec<(Duration, Fault)>;

/// Draws the rounds.
pub(crate) struct Plan {
    random: StdRng,
    /// How many members each cluster should have.
    pub(crate) wanted: [i32; 3],
}

impl Plan {
    /// The plan of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), wanted: FIRST }
    }

    /// The next round.
    pub(crate) fn round(&mut self) -> Round {
        let mut faults = Vec::new();
        // A volume is only destroyed when nothing else is wrong, so that a majority of them always stays.
        if self.one_in(14)
            && let Some(cluster) = self.tolerant()
        {
            return vec![(Duration::ZERO, Fault::Blow(cluster, Blow::VolumeLost(self.number(60))))];
        }
        if self.one_in(3) {
            let trouble = self.trouble();
            // A point is only reached by an operator that has something to do.
            let idle =
                !matches!(trouble, Trouble::Killed { .. } | Trouble::Failpoints(_) | Trouble::Frozen(_));
            let first = matches!(trouble, Trouble::Failpoints(_) | Trouble::Frozen(_)) || self.one_in(2);
            let work = self.work();
            faults = vec![Fault::Trouble(trouble), work];
            if !first {
                faults.reverse();
            }
            if idle && self.one_in(2) {
                faults.retain(|f| matches!(f, Fault::Trouble(_)));
            }
        }
        let more = if faults.is_empty() { 1 } else { 0 } + self.number(3).saturating_sub(self.number(2));
        for _ in 0..more {
            let lasts = faults.iter().any(|f| matches!(f, Fault::Lasting(..)));
            let fault = if !lasts && self.one_in(3) { self.lasting() } else { self.work() };
            faults.push(fault);
        }
        faults.into_iter().map(|fault| (self.pause(), fault)).collect()
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
    fn tolerant(&mut self) -> Option<usize> {
        let able: Vec<usize> = (0..3).filter(|n| self.wanted[*n] >= TOLERANT).collect();
        able.choose(&mut self.random).copied()
    }

    /// Another size for this cluster, such that one of the three is tolerant.
    fn size(&mut self, cluster: usize) -> i32 {
        let others = (0..3).any(|n| n != cluster && self.wanted[n] >= TOLERANT);
        let now = self.wanted[cluster];
        let able: Vec<i32> = SIZES.into_iter().filter(|n| *n != now && (others || *n >= TOLERANT)).collect();
        let size = able.choose(&mut self.random).copied().unwrap_or(now);
        self.wanted[cluster] = size;
        size
    }

    fn work(&mut self) -> Fault {
        let cluster = self.number(3);
        let client = self.one_in(2);
        let blow = match self.number(22) {
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
            _ => Blow::LabelsStripped(self.who()),
        };
        Fault::Blow(cluster, blow)
    }

    fn lasting(&mut self) -> Fault {
        let (cluster, who, node) = (self.number(3), self.who(), self.number(3));
        // Short ones end before anybody has noticed, long ones after everybody has drawn conclusions.
        let (lasting, from, to) = match self.number(9) {
            0..=2 => (Lasting::CutOff(cluster, Who::Leader), 1_000, 30_000),
            3 => (Lasting::CutOff(cluster, who), 1_000, 30_000),
            4 => (Lasting::StandsStill(cluster, who), 1_000, 30_000),
            5..=6 => (Lasting::NodeLost(node), 1_000, 75_000),
            7 => (Lasting::KubeletLost(node), 1_000, 75_000),
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
