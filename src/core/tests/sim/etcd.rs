//! The simulated etcd: one membership log for each cluster formed, strict reconfiguration check,
//! one learner, quorum, boot by join instruction and by what the volume holds. It accepts what real
//! etcd accepts, the promotion of a dead learner included: preventing that is the judge's part.

use std::net::IpAddr;

use etcd_operator_core::{
    etcd::{ListedMember, Look, MemberList, MemberStatus, Refusal, quorum},
    ids::{ClusterId, MemberId, PeerUrl, Uid},
    membership::Call,
    time::Time,
    view::JoinInstruction,
};

use super::kube::{M, founded_by, member_of, name_of, url_of};

/// The member number of another cluster's etcd that comes to run at an address of ours.
pub(crate) const NEIGHBOUR: M = 8_000;

/// What a data directory holds.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) instance: usize,
    pub(crate) id: MemberId,
    pub(crate) applied: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) id: MemberId,
    pub(crate) m: M,
    pub(crate) started: bool,
    pub(crate) learner: bool,
}

/// One cluster that was formed. Its ID follows from its first member alone, as in etcd, so a second
/// formation over an emptied volume bears the same ID and is still another instance.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) cluster_id: ClusterId,
    pub(crate) members: Vec<Listed>,
    pub(crate) removed: Vec<MemberId>,
    /// The index of the last committed entry.
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) leader: Option<MemberId>,
    /// Configuration changes made through the operator's calls.
    pub(crate) version: u64,
    /// A member of it was made a cluster of its own: whoever is left of it must never answer again.
    pub(crate) superseded: bool,
    /// Somebody may have been promised something: a client could write, or a second member was added.
    pub(crate) acknowledged: bool,
    next_id: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) m: M,
    pub(crate) pod: Uid,
    pub(crate) ip: IpAddr,
    pub(crate) instance: usize,
    pub(crate) id: MemberId,
    pub(crate) volume: usize,
    pub(crate) since: Time,
    /// It listens to nobody.
    pub(crate) hidden: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Etcd {
    pub(crate) instances: Vec<Instance>,
    pub(crate) processes: Vec<Process>,
    pub(crate) volumes: Vec<Option<Data>>,
    /// A learner that never catches up.
    pub(crate) stuck: Option<M>,
}

/// How a container start ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    Runs { formed: bool, first_data: bool },
    Exits(&'static str),
}

/// How a call ended on etcd's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    Done,
    Refused(Refusal),
    NoQuorum,
}

impl Instance {
    pub(crate) fn voters(&self) -> impl Iterator<Item = &Listed> {
        self.members.iter().filter(|l| !l.learner)
    }

    pub(crate) fn by_id(&self, id: MemberId) -> Option<&Listed> {
        self.members.iter().find(|l| l.id == id)
    }

    pub(crate) fn at(&self, url: &PeerUrl) -> Option<&Listed> {
        self.members.iter().find(|l| url_of(l.m) == *url)
    }

    pub(crate) fn list(&self) -> MemberList {
        let members = self
            .members
            .iter()
            .map(|l| ListedMember {
                id: l.id,
                name: if l.started { name_of(l.m).0 } else { String::new() },
                peer_urls: vec![url_of(l.m)],
                client_urls: vec![],
                is_learner: l.learner,
            })
            .collect();
        MemberList { cluster_id: self.cluster_id, members }
    }
}

impl Etcd {
    pub(crate) fn process_of(&self, id: MemberId, instance: usize) -> Option<&Process> {
        self.processes.iter().find(|p| p.id == id && p.instance == instance)
    }

    pub(crate) fn alive_voters(&self, instance: usize) -> usize {
        let Some(i) = self.instances.get(instance) else { return 0 };
        i.voters().filter(|l| self.process_of(l.id, instance).is_some()).count()
    }

    pub(crate) fn has_quorum(&self, instance: usize) -> bool {
        self.instances.get(instance).is_some_and(|i| {
            let voters = i.voters().count();
            voters > 0 && self.alive_voters(instance) >= quorum(voters)
        })
    }

    /// Whether this process serves linearizable reads.
    pub(crate) fn serves(&self, p: &Process) -> bool {
        self.instances[p.instance].by_id(p.id).is_some_and(|l| !l.learner) && self.has_quorum(p.instance)
    }

    /// Another cluster, with one member, for addresses that are used again. Returns its index.
    pub(crate) fn neighbour(&mut self) -> usize {
        let there = self.instances.iter().position(|i| i.members.iter().any(|l| l.m == NEIGHBOUR));
        there.unwrap_or_else(|| {
            let id = MemberId(1);
            self.instances.push(Instance {
                cluster_id: ClusterId(99),
                members: vec![Listed { id, m: NEIGHBOUR, started: true, learner: false }],
                removed: vec![],
                index: 500,
                term: 900,
                leader: None,
                version: 0,
                superseded: false,
                acknowledged: false,
                next_id: 1,
            });
            self.volumes.push(Some(Data { instance: self.instances.len() - 1, id, applied: 500 }));
            self.instances.len() - 1
        })
    }

    /// The volume of the neighbour's only member.
    pub(crate) fn neighbours_volume(&self, index: usize) -> usize {
        self.volumes.iter().position(|v| v.as_ref().is_some_and(|d| d.instance == index)).unwrap_or(0)
    }

    /// Elections, and the end of processes that find themselves removed.
    pub(crate) fn settle(&mut self) {
        for index in 0..self.instances.len() {
            if !self.has_quorum(index) {
                self.instances[index].leader = None;
                continue;
            }
            let instance = &self.instances[index];
            self.processes.retain(|p| p.instance != index || instance.by_id(p.id).is_some());
            let alive = |id| self.process_of(id, index).is_some();
            if instance.leader.is_some_and(|id| instance.by_id(id).is_some_and(|l| !l.learner) && alive(id)) {
                continue;
            }
            let next = instance.voters().map(|l| l.id).filter(|id| alive(*id)).min();
            let instance = &mut self.instances[index];
            instance.leader = next;
            instance.term += 1;
        }
    }

    /// Writes by clients: `entries` more are committed, and every voter that runs has them.
    pub(crate) fn commit(&mut self, instance: usize, entries: u64) {
        if !self.has_quorum(instance) {
            return;
        }
        self.instances[instance].index += entries;
        let i = &self.instances[instance];
        for p in self.processes.iter().filter(|p| p.instance == instance) {
            if i.by_id(p.id).is_some_and(|l| !l.learner)
                && let Some(data) = &mut self.volumes[p.volume]
            {
                data.applied = i.index;
            }
        }
    }

    /// Members that run catch up with the leader and, if it is time, announce their names.
    pub(crate) fn replicate(&mut self, announce: bool) -> bool {
        let mut moved = false;
        for p in &self.processes {
            if !self.has_quorum(p.instance) {
                continue;
            }
            let index = self.instances[p.instance].index;
            if let Some(data) = &mut self.volumes[p.volume]
                && data.applied < index
                && self.stuck != Some(p.m)
            {
                data.applied = index;
                moved = true;
            }
        }
        for index in 0..self.instances.len() {
            if !announce || !self.has_quorum(index) {
                continue;
            }
            let running: Vec<MemberId> =
                self.processes.iter().filter(|p| p.instance == index).map(|p| p.id).collect();
            for l in &mut self.instances[index].members {
                if !l.started && running.contains(&l.id) {
                    l.started = true;
                    moved = true;
                }
            }
        }
        moved
    }

    /// What a look at this process finds.
    pub(crate) fn look(&self, p: &Process, now: Time) -> Look {
        let instance = &self.instances[p.instance];
        let applied = self.volumes[p.volume].as_ref().map_or(0, |d| d.applied);
        let status = MemberStatus {
            cluster_id: instance.cluster_id,
            member_id: p.id,
            is_learner: instance.by_id(p.id).is_some_and(|l| l.learner),
            leader: instance.leader,
            term: instance.term,
            raft_index: applied,
            applied_index: applied,
            db_size: 1,
            db_size_in_use: 1,
            version: None,
            errors: vec![],
        };
        Look::Answered { at: now, status, linearizable: self.serves(p) }
    }

    /// A container starts: what etcd does with this instruction over this volume.
    pub(crate) fn boot(
        &mut self,
        m: M,
        pod: &Uid,
        ip: IpAddr,
        volume: usize,
        instruction: &JoinInstruction,
        now: Time,
    ) -> Boot {
        let start = |etcd: &mut Self, data: Data, formed, first_data| {
            let (instance, id) = (data.instance, data.id);
            etcd.volumes[volume] = Some(data);
            let pod = pod.clone();
            etcd.processes.push(Process { m, pod, ip, instance, id, volume, since: now, hidden: false });
            Boot::Runs { formed, first_data }
        };
        if let Some(data) = self.volumes[volume].clone() {
            // The instruction is ignored over data. A removed member learns of it from any peer.
            if self.instances[data.instance].removed.contains(&data.id) {
                return Boot::Exits("the member has been permanently removed from the cluster");
            }
            return start(self, data, false, false);
        }
        let list = match instruction {
            JoinInstruction::New { .. } => {
                let id = MemberId(1_000_000 + m as u64);
                self.instances.push(Instance {
                    cluster_id: founded_by(m),
                    members: vec![Listed { id, m, started: false, learner: false }],
                    removed: vec![],
                    index: 10,
                    term: 2,
                    leader: None,
                    version: 0,
                    superseded: false,
                    acknowledged: false,
                    next_id: 1,
                });
                let data = Data { instance: self.instances.len() - 1, id, applied: 10 };
                return start(self, data, true, true);
            }
            JoinInstruction::Existing { initial_cluster } => initial_cluster,
        };
        let mut named: Vec<M> = list
            .split(',')
            .filter_map(|e| member_of(e.split_once('=').map_or(e, |(name, _)| name)))
            .collect();
        named.sort_unstable();
        let peer = self.processes.iter().find(|p| p.m != m && !p.hidden && named.contains(&p.m));
        let Some(instance) = peer.map(|p| p.instance) else {
            return Boot::Exits("cannot fetch cluster info from peer urls");
        };
        let mut listed: Vec<M> = self.instances[instance].members.iter().map(|l| l.m).collect();
        listed.sort_unstable();
        let own = self.instances[instance].members.iter().find(|l| l.m == m).map(|l| l.id);
        match own {
            Some(id) if listed == named => start(self, Data { instance, id, applied: 0 }, false, true),
            _ => Boot::Exits("member count is unequal or unmatched"),
        }
    }

    /// A container starts with `--force-new-cluster`: what this volume holds becomes a cluster of one, with the same ID.
    pub(crate) fn force(&mut self, m: M, pod: &Uid, ip: IpAddr, volume: usize, now: Time) -> Boot {
        let Some(data) = self.volumes[volume].clone() else {
            return Boot::Exits("the data directory is empty");
        };
        let old = &mut self.instances[data.instance];
        let mut instance = data.instance;
        if old.members.len() != 1 || old.by_id(data.id).is_none() {
            old.superseded = true;
            let others = old.members.iter().map(|l| l.id).filter(|id| *id != data.id);
            let next = Instance {
                cluster_id: old.cluster_id,
                members: vec![Listed { id: data.id, m, started: true, learner: false }],
                removed: old.removed.iter().copied().chain(others).collect(),
                index: data.applied + 1,
                term: old.term + 1,
                leader: None,
                version: 0,
                superseded: false,
                acknowledged: true,
                next_id: old.next_id + 100,
            };
            self.instances.push(next);
            instance = self.instances.len() - 1;
        }
        let applied = self.instances[instance].index;
        self.volumes[volume] = Some(Data { instance, id: data.id, applied });
        let (pod, id) = (pod.clone(), data.id);
        self.processes.push(Process { m, pod, ip, instance, id, volume, since: now, hidden: true });
        Boot::Runs { formed: false, first_data: false }
    }

    /// A membership call reaches etcd.
    pub(crate) fn land(&mut self, index: usize, call: &Call, now: Time) -> Landed {
        if !self.has_quorum(index) {
            return Landed::NoQuorum;
        }
        if let Err(refusal) = self.check(index, call, now) {
            return Landed::Refused(refusal);
        }
        let instance = &mut self.instances[index];
        match call {
            Call::Add(url) => {
                let m = member_of(url.host_label()).expect("the simulation's own URLs");
                instance.next_id += 1;
                let id = MemberId(instance.next_id * 1_000 + m as u64);
                instance.members.push(Listed { id, m, started: false, learner: true });
                instance.acknowledged = true;
            }
            Call::Promote(id) => {
                instance.members.iter_mut().filter(|l| l.id == *id).for_each(|l| l.learner = false);
            }
            Call::Remove(id) => {
                instance.members.retain(|l| l.id != *id);
                instance.removed.push(*id);
            }
            Call::MoveLeader { to, .. } => instance.leader = Some(*to),
            Call::Restart(_) => {}
        }
        instance.index += 1;
        if !matches!(call, Call::MoveLeader { .. }) {
            instance.version += 1;
        }
        self.settle();
        Landed::Done
    }

    /// etcd's own checks, with `--strict-reconfig-check` on and one learner allowed.
    fn check(&self, index: usize, call: &Call, now: Time) -> Result<(), Refusal> {
        let i = &self.instances[index];
        let connected =
            |l: &&Listed| self.process_of(l.id, index).is_some_and(|p| now.since(p.since).as_secs() >= 5);
        let voters = i.voters().count();
        match call {
            Call::Add(url) => {
                if voters > 1 && i.voters().filter(connected).count() < voters {
                    return Err(Refusal::UnhealthyCluster);
                }
                if i.at(url).is_some() {
                    return Err(Refusal::PeerUrlExists);
                }
                if i.members.iter().any(|l| l.learner) {
                    return Err(Refusal::TooManyLearners);
                }
                Ok(())
            }
            Call::Promote(id) => {
                let l = i.by_id(*id).ok_or(Refusal::MemberNotFound)?;
                if !l.learner {
                    return Err(Refusal::NotLearner);
                }
                // The leader remembers how far the learner once was; whether it still lives is not asked.
                let applied = self
                    .volumes
                    .iter()
                    .flatten()
                    .find(|d| d.id == *id && d.instance == index)
                    .map_or(0, |d| d.applied);
                if applied * 10 < i.index * 9 {
                    return Err(Refusal::LearnerNotReady);
                }
                // etcd counts the learner itself as started.
                let started = i.voters().filter(|l| l.started).count() + 1;
                if started < quorum(voters + 1) { Err(Refusal::NotEnoughStarted) } else { Ok(()) }
            }
            Call::Remove(id) => {
                let l = i.by_id(*id).ok_or(Refusal::MemberNotFound)?;
                if l.learner {
                    return Ok(());
                }
                let started = i.voters().filter(|v| v.id != *id && v.started).count();
                if started < quorum(voters - 1) {
                    return Err(Refusal::NotEnoughStarted);
                }
                if self.process_of(*id, index).is_none() {
                    return Ok(());
                }
                let active = i.voters().filter(connected).count();
                if active.saturating_sub(1) < quorum(voters - 1) {
                    Err(Refusal::UnhealthyCluster)
                } else {
                    Ok(())
                }
            }
            Call::Restart(_) => Ok(()),
            Call::MoveLeader { to, .. } => {
                let fit = i.by_id(*to).is_some_and(|l| !l.learner) && self.process_of(*to, index).is_some();
                if fit { Ok(()) } else { Err(Refusal::BadLeaderTransferee) }
            }
        }
    }
}
