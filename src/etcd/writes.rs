//! Owns how a membership change is sent: checked, once, and never again while its outcome is open.
//! Decides nothing about clusters: whether a change is safe was judged before. Does I/O.

use std::{fmt, future::Future, time::Duration};

use etcd_operator_core::{
    etcd::{EtcdFailure, MemberList, Refusal},
    ids::{MemberId, PeerUrl},
};
use etcd_operator_failpoints::{self as failpoints, Effect};
use futures::future::BoxFuture;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::Channel;

use crate::{
    etcd::{Call, Etcd, Failed, verify},
    ports::{Added, EtcdWrites},
    target::Target,
    wire::{Answerer, Wire},
};

/// The part of a membership call's deadline that is for the network. The server is told the rest,
/// so that a change it has not proposed by then (for want of a leader) is over there too.
const NETWORK: Duration = Duration::from_secs(1);

impl EtcdWrites for Etcd {
    fn add_learner<'a>(
        &'a self,
        voters: &'a [Target],
        peer_url: &'a PeerUrl,
    ) -> BoxFuture<'a, Result<Added, EtcdFailure>> {
        Box::pin(async move {
            let change = Change { effect: Effect::MemberAdd, subject: peer_url.to_string() };
            let (member_id, list) = self
                .change(voters, &change, move |wire| async move {
                    let (who, id, list) = wire.add_learner(peer_url).await?;
                    Ok((Some(who), (id, list)))
                })
                .await?;
            Ok(Added { member_id, list })
        })
    }

    fn promote<'a>(
        &'a self,
        voters: &'a [Target],
        id: MemberId,
    ) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(async move {
            let change = Change { effect: Effect::MemberPromote, subject: id.to_string() };
            self.change(voters, &change, move |wire| async move {
                let (who, list) = wire.promote(id).await?;
                Ok((Some(who), list))
            })
            .await
        })
    }

    fn remove<'a>(
        &'a self,
        voters: &'a [Target],
        id: MemberId,
    ) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(async move {
            let change = Change { effect: Effect::MemberRemove, subject: id.to_string() };
            self.change(voters, &change, move |wire| async move {
                let (who, list) = wire.remove(id).await?;
                Ok((Some(who), list))
            })
            .await
        })
    }

    fn move_leader<'a>(&'a self, leader: &'a Target, to: MemberId) -> BoxFuture<'a, Result<(), EtcdFailure>> {
        Box::pin(async move {
            let change = Change { effect: Effect::MoveLeader, subject: to.to_string() };
            self.change(std::slice::from_ref(leader), &change, move |wire| async move {
                wire.move_leader(to).await?;
                Ok((None, ()))
            })
            .await
        })
    }
}

struct Change {
    effect: Effect,
    /// The peer URL or member ID, for the trace.
    subject: String,
}

impl Etcd {
    /// The change through the first voter that can take it. Dialling and checking all voters
    /// together may take one read deadline; the change itself one membership deadline.
    async fn change<T, F>(
        &self,
        voters: &[Target],
        change: &Change,
        send: impl Fn(Wire) -> F + Send + Sync,
    ) -> Result<T, EtcdFailure>
    where
        F: Future<Output = Result<(Option<Answerer>, T), etcd_client::Error>> + Send,
    {
        let whole = self.deadlines().read;
        let until = Instant::now() + whole;
        let mut last = EtcdFailure::Unreachable("there is no voter to send it to".into());
        for (n, target) in voters.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Half of what is left for each voter but the last, so that one black hole leaves time.
            let share = if n + 1 == voters.len() { left } else { left / 2 };
            let result = match self.checked(target, share).await {
                Ok(channel) => self.send(channel, target, change, &send).await,
                Err(failure) => Err(failure),
            };
            match &result {
                Ok(_) => trace(change, target, &"done"),
                Err(failure) => trace(change, target, failure),
            }
            match result {
                Err(failure) if nothing_was_sent(&failure) => last = failure,
                result => return result,
            }
        }
        Err(last)
    }

    /// A connection to this member and to nobody else: made now, asked who is there, and lost
    /// rather than made again.
    async fn checked(&self, target: &Target, share: Duration) -> Result<Channel, EtcdFailure> {
        let deadline = Instant::now() + share;
        let silent = || {
            EtcdFailure::Unreachable(format!(
                "member {} at {} did not say who it is within {share:?}; nothing was sent",
                target.member, target.address
            ))
        };
        let channel = timeout_at(deadline, self.dialer().single(target)).await.map_err(|_| silent())??;
        let call = Call { channel, target, limit: share };
        let status = match timeout_at(deadline, self.call(&call, Wire::status)).await {
            Ok(Ok(status)) => status,
            Ok(Err(failed)) => {
                // The change itself was not sent, whatever became of the question.
                return Err(match failed.into_failure() {
                    EtcdFailure::Ambiguous(text) => EtcdFailure::Unreachable(text),
                    EtcdFailure::Refused(refusal) => EtcdFailure::Unreachable(refusal.to_string()),
                    failure => failure,
                });
            }
            Err(_) => return Err(silent()),
        };
        let who = Answerer { cluster_id: status.cluster_id, member_id: status.member_id };
        verify(target, who, true)?;
        if status.is_learner {
            return Err(EtcdFailure::Refused(Refusal::LearnerAsked));
        }
        Ok(call.channel)
    }

    async fn send<T, F>(
        &self,
        channel: Channel,
        target: &Target,
        change: &Change,
        send: impl Fn(Wire) -> F + Send + Sync,
    ) -> Result<T, EtcdFailure>
    where
        F: Future<Output = Result<(Option<Answerer>, T), etcd_client::Error>> + Send,
    {
        let whole = self.deadlines().membership;
        let call = Call { channel, target, limit: whole.saturating_sub(NETWORK).max(whole / 2) };
        failpoints::before(change.effect);
        trace(change, target, &"sent");
        let answer = timeout(whole, self.call(&call, send)).await;
        if failpoints::after(change.effect) {
            return Err(EtcdFailure::Ambiguous("failpoint: reply lost".into()));
        }
        let (who, outcome) = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(failed)) => return Err(failed.into_failure()),
            Err(_) => {
                let expired = Failed::Expired { member: target.member.clone(), after: whole };
                return Err(expired.into_failure());
            }
        };
        match who.map(|who| verify(target, who, true)) {
            None | Some(Ok(())) => Ok(outcome),
            // It was sent, so "wrong peer", which says that nothing was, would be a lie.
            Some(Err(wrong)) => {
                Err(EtcdFailure::Ambiguous(format!("the answer came from elsewhere: {wrong}")))
            }
        }
    }
}

/// Whether the failure proves that the change was neither carried out nor may be yet.
fn nothing_was_sent(failure: &EtcdFailure) -> bool {
    matches!(
        failure,
        EtcdFailure::Unreachable(_)
            | EtcdFailure::Tls(_)
            | EtcdFailure::WrongPeer(_)
            | EtcdFailure::Refused(Refusal::LearnerAsked)
    )
}

/// One line with outcome "sent" for each change that leaves, and one with what became of it or of
/// the check before it. Whoever ends the process in between still finds the first, so that the
/// trace can be matched with etcd's own log of applied changes.
fn trace(change: &Change, target: &Target, outcome: &dyn fmt::Display) {
    tracing::info!(
        target: "etcd_operator::membership",
        change = change.effect.name(),
        subject = change.subject,
        cluster_id = target.expected.cluster_id.map(tracing::field::display),
        member = %target.member,
        %outcome,
        "membership call"
    );
}
