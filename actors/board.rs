//! Owns what the actors of one cluster know from etcd and share: the last member list, the last
//! look at each member, and whether the cluster is gone. Each entry has one writer. Does no I/O.
//!
//! The board is memory, not truth: after a restart it is empty and is filled by looking again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{PoisonError, RwLock},
    time::Duration,
};

use etcd_operator_core::{
    etcd::Look,
    ids::{MemberName, Uid},
    time::Time,
    view::{ClusterSituation, ClusterView, ListFact, MemberFacts, Presence, ThrownOut},
};

use crate::ports::{SeenCluster, SeenMember};

/// See the module.
#[derive(Debug)]
pub(crate) struct Board {
    lost_node_after: Option<Duration>,
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    list: ListFact,
    looks: HashMap<Uid, Looked>,
    gone: bool,
    members_confirmed: Option<Time>,
    known: Option<BTreeSet<MemberName>>,
    refused: Option<String>,
    members_refused: HashMap<Uid, String>,
    thrown_out: HashMap<Uid, ThrownOut>,
    cannot_grow: HashMap<Uid, String>,
    stranded: HashMap<Uid, Time>,
    fault: Option<String>,
}

/// A look, and the Pod whose process it was.
#[derive(Debug, Clone)]
struct Looked {
    pod_uid: Uid,
    look: Look,
    stalled: bool,
}

impl Board {
    /// An empty board, for members that a node may hold for so long when it is gone.
    pub(crate) fn new(now: Time, lost_node_after: Option<Duration>) -> Self {
        Self {
            lost_node_after,
            inner: RwLock::new(Inner {
                list: ListFact::Unknown { since: now },
                looks: HashMap::new(),
                gone: false,
                members_confirmed: None,
                known: None,
                refused: None,
                members_refused: HashMap::new(),
                thrown_out: HashMap::new(),
                cannot_grow: HashMap::new(),
                stranded: HashMap::new(),
                fault: None,
            }),
        }
    }

    // Every write replaces whole values, so a panic in between leaves nothing half done.
    fn read<T>(&self, f: impl FnOnce(&Inner) -> T) -> T {
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, f: impl FnOnce(&mut Inner)) {
        f(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The guard's: a list was read. One that says the same again keeps the time at which it was
    /// first read: whatever was compared with it then still holds. Returns whether it is news.
    pub(crate) fn listed(&self, list: ListFact) -> bool {
        let mut news = false;
        self.write(|b| {
            news = match (&b.list, &list) {
                (ListFact::Known { list: old, .. }, ListFact::Known { list: new, .. }) => old != new,
                (ListFact::Unknown { .. }, ListFact::Unknown { .. }) => false,
                _ => true,
            };
            if news {
                b.list = list;
            }
        });
        news
    }

    /// The last list.
    pub(crate) fn list(&self) -> ListFact {
        self.read(|b| b.list.clone())
    }

    /// A member actor's: its process was looked at.
    pub(crate) fn looked(&self, member: &Uid, pod_uid: Uid, look: Look, stalled: bool) {
        self.write(|b| {
            b.looks.insert(member.clone(), Looked { pod_uid, look, stalled });
        });
    }

    /// The supervisor's: the member is gone.
    pub(crate) fn forget(&self, member: &Uid) {
        self.write(|b| {
            b.looks.remove(member);
            b.members_refused.remove(member);
            b.thrown_out.remove(member);
            b.cannot_grow.remove(member);
            b.stranded.remove(member);
        });
    }

    /// A member actor's: what the API server says as it keeps refusing one of its objects; none when that is
    /// over. Returns whether it is news.
    pub(crate) fn member_refused(&self, member: &Uid, words: Option<&str>) -> bool {
        let mut news = false;
        self.write(|b| {
            news = b.members_refused.get(member).map(String::as_str) != words;
            match words {
                Some(words) => b.members_refused.insert(member.clone(), words.to_owned()),
                None => b.members_refused.remove(member),
            };
        });
        news
    }

    /// A member actor's: the Pods that it made and whose process never answered.
    pub(crate) fn set_thrown_out(&self, member: &Uid, thrown_out: ThrownOut) {
        self.write(|b| {
            b.thrown_out.insert(member.clone(), thrown_out);
        });
    }

    /// A member actor's: what the API server said as it refused to let its volume grow; none when it is to be
    /// asked again.
    pub(crate) fn set_cannot_grow(&self, member: &Uid, words: Option<String>) {
        self.write(|b| {
            match words {
                Some(words) => b.cannot_grow.insert(member.clone(), words),
                None => b.cannot_grow.remove(member),
            };
        });
    }

    /// A member actor's: since when its node seems to be gone; none when it does not.
    pub(crate) fn set_stranded(&self, member: &Uid, since: Option<Time>) {
        self.write(|b| {
            match since {
                Some(since) => b.stranded.insert(member.clone(), since),
                None => b.stranded.remove(member),
            };
        });
    }

    /// The supervisor's: a live GET found the cluster gone. It never comes back under this UID.
    pub(crate) fn set_gone(&self) {
        self.write(|b| b.gone = true);
    }

    /// Whether the cluster is known to be gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.read(|b| b.gone)
    }

    /// The supervisor's: these are the EtcdMembers, read live at `at`.
    pub(crate) fn confirmed(&self, at: Time, live: &SeenCluster) {
        self.write(|b| {
            b.members_confirmed = Some(at);
            b.known = Some(live.members.iter().map(|m| m.member.name.clone()).collect());
        });
    }

    /// The supervisor's: this life wrote the cluster's first status, so no EtcdMember was made before.
    pub(crate) fn began(&self) {
        self.write(|b| b.known = Some(BTreeSet::new()));
    }

    /// The supervisor's: it has made an EtcdMember of this name.
    pub(crate) fn made(&self, name: MemberName) {
        self.write(|b| {
            if let Some(known) = &mut b.known {
                known.insert(name);
            }
        });
    }

    /// Whether `seen` shows every EtcdMember that can exist: those of the last live LIST and those made
    /// since, for nobody else makes any. One that is missing was deleted, or the store is behind.
    pub(crate) fn is_complete(&self, seen: &SeenCluster) -> bool {
        let shown = |name: &MemberName| seen.members.iter().any(|m| m.member.name == *name);
        self.read(|b| b.known.as_ref().is_some_and(|known| known.iter().all(shown)))
    }

    /// The supervisor's: what keeps failing, in words; none when it is over.
    pub(crate) fn set_fault(&self, fault: Option<String>) {
        self.write(|b| b.fault = fault);
    }

    /// The supervisor's: what the API server says as it keeps refusing an object; none when that is over.
    pub(crate) fn set_refused(&self, words: Option<String>) {
        self.write(|b| b.refused = words);
    }

    /// What is known of one member.
    pub(crate) fn facts(&self, seen: &SeenMember, now: Time) -> MemberFacts {
        let uid = &seen.member.uid;
        let (looked, refused, thrown_out, cannot_grow, stranded) = self.read(|b| {
            let thrown_out = b.thrown_out.get(uid).copied().unwrap_or_default();
            let cannot_grow = b.cannot_grow.get(uid).cloned();
            let stranded = b.stranded.get(uid).copied();
            let refused = b.members_refused.get(uid).cloned();
            (b.looks.get(uid).cloned(), refused, thrown_out, cannot_grow, stranded)
        });
        // A look at a former Pod says nothing about the present one, and at one that has ended since nothing any more.
        let current = looked.filter(|l| seen.pod.present().is_some_and(|p| p.uid == l.pod_uid && !p.ended));
        let (look, stalled) = current.map_or((Look::Unknown { since: now }, false), |l| (l.look, l.stalled));
        MemberFacts {
            member: seen.member.clone(),
            pod: seen.pod.clone(),
            pvc: seen.pvc.clone(),
            look,
            stalled,
            refused,
            cannot_grow,
            thrown_out,
            stranded,
        }
    }

    /// Everything that a cluster decision looks at; none when there is no EtcdCluster in sight.
    pub(crate) fn situation(&self, seen: &SeenCluster, now: Time) -> Option<ClusterSituation> {
        let Presence::Present(cluster) = &seen.cluster else { return None };
        let cluster: ClusterView = cluster.clone();
        let members = seen.members.iter().map(|m| self.facts(m, now)).collect();
        let (list, members_confirmed, refused, fault) =
            self.read(|b| (b.list.clone(), b.members_confirmed, b.refused.clone(), b.fault.clone()));
        Some(ClusterSituation {
            now,
            cluster,
            services: seen.services.clone(),
            budget: seen.budget,
            members,
            list,
            members_confirmed,
            refused,
            fault,
            lost_node_after: self.lost_node_after,
        })
    }
}
