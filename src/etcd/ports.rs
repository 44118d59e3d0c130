//! Owns the two ports through which the rest of the operator sees etcd: reading, which anyone may
//! do, and changing the membership, which only one owner may. Does no I/O itself.

use std::{fmt, sync::Arc};

use etcd_operator_core::{
    etcd::{EtcdFailure, Look, MemberList, MemberStatus},
    ids::{MemberId, PeerUrl},
};
use futures::future::BoxFuture;

use crate::target::Target;

/// What etcd did when a learner was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The new member's ID.
    pub member_id: MemberId,
    /// The list after the change, as the answering voter applied it. The joiner's
    /// `--initial-cluster` is made of it.
    pub list: MemberList,
}

/// Reading from etcd. Implemented by [`crate::Etcd`], and by a test's own few lines.
pub trait EtcdReads: Send + Sync {
    /// The member list by a linearizable read, from the first of `targets` that gives it.
    ///
    /// `targets` are voters, best first. One that is slow or fails does not fail the call while
    /// another answers. The whole takes at most one read deadline (3 s).
    ///
    /// # Errors
    /// The most telling failure, when none gave a list. Without a quorum this is
    /// [`EtcdFailure::Ambiguous`], and means "unknown", never "no such cluster".
    fn list<'a>(&'a self, targets: &'a [Target]) -> BoxFuture<'a, Result<MemberList, EtcdFailure>>;

    /// What this member's own process says about itself. Learners answer too.
    ///
    /// Does not compare the answer with `target.expected`: the answer carries both IDs.
    ///
    /// # Errors
    /// As the call failed.
    fn status<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<MemberStatus, EtcdFailure>>;

    /// Whether a linearizable read through this member succeeds, hence whether it is a voter
    /// connected to a quorum. etcd looks at credentials only after it has reached the read index,
    /// so its refusing ours is a success too.
    ///
    /// # Errors
    /// As the read failed; [`EtcdFailure::WrongPeer`] when another cluster or member answered.
    fn linearizable_read<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<(), EtcdFailure>>;

    /// Status and a linearizable read, side by side, within one read deadline (3 s).
    ///
    /// Never fails: see [`Look`] for what silence and ignorance are.
    fn look<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Look>;
}

/// Changing etcd's membership. Implemented by [`crate::Etcd`], and by a test's own few lines.
///
/// `voters` are voters, best first. Before each effect, the connection that will carry it is asked
/// who answers there. The next voter is tried only when the failure proves that nothing was sent
/// or done: no connection, TLS, another peer, a learner asked. Whatever leaves doubt is returned
/// at once.
///
/// # Errors
/// All methods: [`EtcdFailure`], by what may have happened to the cluster.
pub trait EtcdWrites: Send + Sync {
    /// Adds a learner at `peer_url`.
    fn add_learner<'a>(
        &'a self,
        voters: &'a [Target],
        peer_url: &'a PeerUrl,
    ) -> BoxFuture<'a, Result<Added, EtcdFailure>>;

    /// Makes a voter of a learner. etcd itself does not ask whether the learner is alive.
    fn promote<'a>(
        &'a self,
        voters: &'a [Target],
        id: MemberId,
    ) -> BoxFuture<'a, Result<MemberList, EtcdFailure>>;

    /// Removes a member.
    fn remove<'a>(
        &'a self,
        voters: &'a [Target],
        id: MemberId,
    ) -> BoxFuture<'a, Result<MemberList, EtcdFailure>>;

    /// Hands leadership from `leader` to the voter `to`, and returns when `to` leads.
    fn move_leader<'a>(&'a self, leader: &'a Target, to: MemberId) -> BoxFuture<'a, Result<(), EtcdFailure>>;
}

/// The reading port, for anyone: cheap to clone.
#[derive(Clone)]
pub struct MemberReader(Arc<dyn EtcdReads>);

impl MemberReader {
    /// A port to this implementation.
    pub fn new(reads: Arc<dyn EtcdReads>) -> Self {
        Self(reads)
    }

    /// See [`EtcdReads::list`].
    ///
    /// # Errors
    /// See there.
    pub async fn list(&self, targets: &[Target]) -> Result<MemberList, EtcdFailure> {
        self.0.list(targets).await
    }

    /// See [`EtcdReads::status`].
    ///
    /// # Errors
    /// See there.
    pub async fn status(&self, target: &Target) -> Result<MemberStatus, EtcdFailure> {
        self.0.status(target).await
    }

    /// See [`EtcdReads::linearizable_read`].
    ///
    /// # Errors
    /// See there.
    pub async fn linearizable_read(&self, target: &Target) -> Result<(), EtcdFailure> {
        self.0.linearizable_read(target).await
    }

    /// See [`EtcdReads::look`].
    pub async fn look(&self, target: &Target) -> Look {
        self.0.look(target).await
    }
}

impl fmt::Debug for MemberReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberReader")
    }
}

/// The port that changes the membership: made once for one guard and moved into it.
///
/// Not `Clone`, and every call takes it by `&mut`, so that two changes cannot overlap within one
/// guard's life. A successor gets a port of its own only after its predecessor's is dropped.
pub struct MembershipWriter(Box<dyn EtcdWrites>);

impl MembershipWriter {
    /// A port to this implementation.
    pub fn new(writes: impl EtcdWrites + 'static) -> Self {
        Self(Box::new(writes))
    }

    /// See [`EtcdWrites::add_learner`].
    ///
    /// # Errors
    /// See there.
    pub async fn add_learner(&mut self, voters: &[Target], peer_url: &PeerUrl) -> Result<Added, EtcdFailure> {
        self.0.add_learner(voters, peer_url).await
    }

    /// See [`EtcdWrites::promote`].
    ///
    /// # Errors
    /// See there.
    pub async fn promote(&mut self, voters: &[Target], id: MemberId) -> Result<MemberList, EtcdFailure> {
        self.0.promote(voters, id).await
    }

    /// See [`EtcdWrites::remove`].
    ///
    /// # Errors
    /// See there.
    pub async fn remove(&mut self, voters: &[Target], id: MemberId) -> Result<MemberList, EtcdFailure> {
        self.0.remove(voters, id).await
    }

    /// See [`EtcdWrites::move_leader`].
    ///
    /// # Errors
    /// See there.
    pub async fn move_leader(&mut self, leader: &Target, to: MemberId) -> Result<(), EtcdFailure> {
        self.0.move_leader(leader, to).await
    }
}

impl fmt::Debug for MembershipWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MembershipWriter")
    }
}
