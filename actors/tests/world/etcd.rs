//! Owns the fake etcd: clusters that were formed, their members, the processes that run and what
//! their volumes hold. It accepts what etcd accepts, a dead learner's promotion included. No I/O.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use etcd_operator_core::{
    etcd::{ListedMember, MemberList, MemberStatus, Refusal, quorum},
    ids::{ClusterId, MemberId, MemberName, PeerUrl, Uid},
    time::Time,
    view::JoinInstruction,
};

/// The ID of the cluster that a member at this peer URL forms alone: always the same, as etcd's is.
pub(crate) fn founded_at(url: &PeerUrl) -> ClusterId {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    ClusterId(url.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) cluster_id: ClusterId,
    /// The EtcdCluster whose seed formed it.
    pub(crate) of: Uid,
    pub(crate) members: Vec<ListedMember>,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) leader: Option<MemberId>,
    next_id: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pod: Uid,
    pub(crate) member: MemberName,
    pub(crate) instance: usize,
    pub(crate) id: MemberId,
    pub(crate) since: Time,
    /// It runs and answers nobody.
    pub(crate) mute: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Etcd {
    pub(crate) instances: Vec<Instance>,
    pub(crate) processes: BTreeMap<SocketAddr, Process>,
    /// What a volume holds, by the PVC's UID.
    pub(crate) volumes: BTreeMap<Uid, (usize, MemberId)>,
}

/// A voter must have been connected for this long before etcd adds a member.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
/// How long a learner needs to catch up.
const CATCH_UP: Duration = Duration::from_millis(400);

impl Etcd {
    /// A container starts. Returns why its process ends, if it does.
    pub(crate) fn boot(
        &mut self,
        address: SocketAddr,
        process: (Uid, MemberName, Uid),
        url: &PeerUrl,
        of: &Uid,
        instruction: &JoinInstruction,
        now: Time,
    ) -> Result<(), String> {
        let (pod, member, volume) = process;
        let (instance, id) = match (self.volumes.get(&volume), instruction) {
            (Some(data), _) => *data,
            (None, JoinInstruction::New { .. }) => self.form(url, of),
            (None, JoinInstruction::Existing { initial_cluster }) => self.join(url, initial_cluster)?,
        };
        if !self.instances[instance].members.iter().any(|m| m.id == id) {
            return Err("the member has been permanently removed from the cluster".into());
        }
        self.volumes.insert(volume.clone(), (instance, id));
        self.processes.insert(address, Process { pod, member, instance, id, since: now, mute: false });
        self.settle();
        Ok(())
    }

    fn form(&mut self, url: &PeerUrl, of: &Uid) -> (usize, MemberId) {
        let n = self.instances.len();
        let base = (n as u64 + 1) << 32;
        let id = MemberId(base + 1);
        let seed = ListedMember {
            id,
            name: String::new(),
            peer_urls: vec![url.clone()],
            client_urls: vec![],
            is_learner: false,
        };
        self.instances.push(Instance {
            cluster_id: founded_at(url),
            of: of.clone(),
            members: vec![seed],
            index: 10,
            term: 2,
            leader: Some(id),
            next_id: base + 2,
        });
        (n, id)
    }

    /// A joiner compares its list with that of a member that answers, and ends when they differ.
    fn join(&self, url: &PeerUrl, initial_cluster: &str) -> Result<(usize, MemberId), String> {
        let mut urls: Vec<&str> =
            initial_cluster.split(',').filter_map(|e| e.split_once('=').map(|e| e.1)).collect();
        urls.sort_unstable();
        let found = self.instances.iter().enumerate().find_map(|(n, i)| {
            let own = i.members.iter().find(|m| m.is_at(url))?;
            let answers = self.processes.values().any(|p| p.instance == n && p.id != own.id && !p.mute);
            answers.then_some((n, own.id, i))
        });
        let Some((n, id, instance)) = found else {
            return Err("couldn't find local name in the initial cluster configuration".into());
        };
        let mut listed: Vec<&str> =
            instance.members.iter().flat_map(|m| m.peer_urls.iter().map(PeerUrl::as_str)).collect();
        listed.sort_unstable();
        if listed == urls { Ok((n, id)) } else { Err("member count is unequal".into()) }
    }

    fn alive(&self, instance: usize, id: MemberId) -> bool {
        self.processes.values().any(|p| p.instance == instance && p.id == id && !p.mute)
    }

    pub(crate) fn has_quorum(&self, instance: usize) -> bool {
        let voters: Vec<MemberId> =
            self.instances[instance].members.iter().filter(|m| !m.is_learner).map(|m| m.id).collect();
        voters.iter().filter(|id| self.alive(instance, **id)).count() >= quorum(voters.len())
    }

    /// Whether this process serves linearizable reads.
    pub(crate) fn serves(&self, p: &Process) -> bool {
        !p.mute
            && self.has_quorum(p.instance)
            && self.instances[p.instance].members.iter().any(|m| m.id == p.id && !m.is_learner)
    }

    /// Elections, names of members that run, and the end of processes that were removed.
    pub(crate) fn settle(&mut self) {
        for n in 0..self.instances.len() {
            let instance = &self.instances[n];
            let listed: Vec<MemberId> = instance.members.iter().map(|m| m.id).collect();
            self.processes.retain(|_, p| p.instance != n || listed.contains(&p.id));
            if !self.has_quorum(n) {
                self.instances[n].leader = None;
                continue;
            }
            let voters: Vec<MemberId> =
                self.instances[n].members.iter().filter(|m| !m.is_learner).map(|m| m.id).collect();
            let leads = self.instances[n].leader.is_some_and(|l| voters.contains(&l) && self.alive(n, l));
            if !leads {
                let next = voters.iter().copied().find(|id| self.alive(n, *id));
                self.instances[n].leader = next;
                self.instances[n].term += 1;
            }
            let running: Vec<(MemberId, String)> = self
                .processes
                .values()
                .filter(|p| p.instance == n && !p.mute)
                .map(|p| (p.id, p.member.0.clone()))
                .collect();
            for m in &mut self.instances[n].members {
                if let Some((_, name)) = running.iter().find(|(id, _)| *id == m.id)
                    && m.name.is_empty()
                {
                    m.name.clone_from(name);
                }
            }
        }
    }

    pub(crate) fn list(&self, instance: usize) -> MemberList {
        let i = &self.instances[instance];
        MemberList { cluster_id: i.cluster_id, members: i.members.clone() }
    }

    pub(crate) fn status(&self, p: &Process, now: Time) -> MemberStatus {
        let i = &self.instances[p.instance];
        let is_learner = i.members.iter().any(|m| m.id == p.id && m.is_learner);
        let applied = if is_learner && now.since(p.since) < CATCH_UP { 0 } else { i.index };
        MemberStatus {
            cluster_id: i.cluster_id,
            member_id: p.id,
            is_learner,
            leader: i.leader,
            term: i.term,
            raft_index: i.index,
            applied_index: applied,
            db_size: 20_480,
            db_size_in_use: 16_384,
            version: Some(etcd_operator_core::version::EtcdVersion::new(3, 6, 16)),
            errors: vec![],
        }
    }

    pub(crate) fn add_learner(
        &mut self,
        instance: usize,
        url: &PeerUrl,
        now: Time,
    ) -> Result<MemberId, Refusal> {
        let connected = |id: MemberId| {
            self.processes.values().any(|p| {
                p.instance == instance && p.id == id && !p.mute && now.since(p.since) >= HEALTH_INTERVAL
            })
        };
        let i = &self.instances[instance];
        let voters: Vec<MemberId> = i.members.iter().filter(|m| !m.is_learner).map(|m| m.id).collect();
        if voters.len() > 1 && !voters.iter().all(|id| connected(*id)) {
            return Err(Refusal::UnhealthyCluster);
        }
        if i.members.iter().any(|m| m.is_at(url)) {
            return Err(Refusal::PeerUrlExists);
        }
        if i.members.iter().any(|m| m.is_learner) {
            return Err(Refusal::TooManyLearners);
        }
        let i = &mut self.instances[instance];
        let id = MemberId(i.next_id);
        i.next_id += 1;
        i.index += 1;
        i.members.push(ListedMember {
            id,
            name: String::new(),
            peer_urls: vec![url.clone()],
            client_urls: vec![],
            is_learner: true,
        });
        Ok(id)
    }

    pub(crate) fn promote(&mut self, instance: usize, id: MemberId, now: Time) -> Result<(), Refusal> {
        let behind = self
            .processes
            .values()
            .any(|p| p.instance == instance && p.id == id && now.since(p.since) < CATCH_UP);
        let i = &mut self.instances[instance];
        let Some(m) = i.members.iter_mut().find(|m| m.id == id) else { return Err(Refusal::MemberNotFound) };
        if !m.is_learner {
            return Err(Refusal::NotLearner);
        }
        if behind {
            return Err(Refusal::LearnerNotReady);
        }
        m.is_learner = false;
        i.index += 1;
        self.settle();
        Ok(())
    }

    pub(crate) fn remove(&mut self, instance: usize, id: MemberId) -> Result<(), Refusal> {
        let i = &self.instances[instance];
        let Some(m) = i.members.iter().find(|m| m.id == id) else { return Err(Refusal::MemberNotFound) };
        let rest: Vec<MemberId> =
            i.members.iter().filter(|m| !m.is_learner && m.id != id).map(|m| m.id).collect();
        let alive = rest.iter().filter(|r| self.alive(instance, **r)).count();
        if !m.is_learner && alive < quorum(rest.len()) {
            return Err(Refusal::UnhealthyCluster);
        }
        let i = &mut self.instances[instance];
        i.members.retain(|m| m.id != id);
        i.index += 1;
        self.settle();
        Ok(())
    }

    pub(crate) fn move_leader(&mut self, instance: usize, to: MemberId) -> Result<(), Refusal> {
        if !self.alive(instance, to) {
            return Err(Refusal::BadLeaderTransferee);
        }
        let i = &mut self.instances[instance];
        i.leader = Some(to);
        i.term += 1;
        Ok(())
    }
}
