//! Owns how a read is spread over members and bounded in time. Decides nothing about clusters. Does I/O.

use std::{future::Future, time::Duration};

use etcd_operator_core::{
    etcd::{EtcdFailure, Look, MemberList, MemberStatus, Refusal},
    ids::{ClusterId, MemberId},
};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use crate::{
    etcd::{Call, Etcd, Failed},
    ports::EtcdReads,
    target::Target,
    wire::{Answerer, Wire},
};

/// How long one target may be silent before the next is asked as well: a healthy voter answers a
/// linearizable list within a few round trips and an fsync, so this is patience for a slow disk.
/// With many targets it is shorter, so that each is asked within the deadline.
const PATIENCE: Duration = Duration::from_millis(750);

impl EtcdReads for Etcd {
    fn list<'a>(&'a self, targets: &'a [Target]) -> BoxFuture<'a, Result<MemberList, EtcdFailure>> {
        Box::pin(async move {
            let deadline = self.read_deadline();
            first_answer(targets, self.deadlines().read, |target| async move {
                let (who, list) =
                    self.read(target, deadline, Wire::list).await.map_err(Failed::into_failure)?;
                verify(target, who)?;
                Ok(list)
            })
            .await
        })
    }

    fn status<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<MemberStatus, EtcdFailure>> {
        Box::pin(async move {
            self.read(target, self.read_deadline(), Wire::status).await.map_err(Failed::into_failure)
        })
    }

    fn linearizable_read<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<(), EtcdFailure>> {
        Box::pin(async move { self.served(target, self.read_deadline()).await.map(|_| ()) })
    }

    fn look<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Look> {
        Box::pin(async move {
            let deadline = self.read_deadline();
            let read = self.served(target, deadline);
            futures::pin_mut!(read);
            let status = self.read(target, deadline, Wire::status);
            futures::pin_mut!(status);
            // A member that does not answer Status has been looked at, whatever the read would say.
            let (status, early) = match futures::future::select(status, read.as_mut()).await {
                futures::future::Either::Left((status, _)) => (status, None),
                futures::future::Either::Right((served, status)) => (status.await, Some(served)),
            };
            let status = match status {
                Ok(status) => status,
                Err(failed) => {
                    tracing::debug!(member = %target.member, address = %target.address, failure = %failed, "no Status");
                    let now = self.now();
                    return if failed.is_silence() {
                        Look::Silent { at: now }
                    } else {
                        Look::Unknown { since: now }
                    };
                }
            };
            let served = match early {
                Some(served) => served,
                None if status.is_learner => Err(EtcdFailure::Refused(Refusal::LearnerAsked)),
                None => read.await,
            };
            // Status and read may have gone over two connections: both must be of one process.
            let linearizable =
                served.is_ok_and(|who| who.is_none_or(|who| who.is(status.cluster_id, status.member_id)));
            Look::Answered { at: self.now(), status, linearizable }
        })
    }
}

impl Answerer {
    fn is(self, cluster_id: ClusterId, member_id: MemberId) -> bool {
        self.cluster_id == cluster_id && self.member_id == member_id
    }
}

impl Etcd {
    fn read_deadline(&self) -> Instant {
        Instant::now() + self.deadlines().read
    }

    /// One read over the member's pooled channel. A channel over which no answer came back is
    /// dropped, so that the next look dials afresh instead of waiting on a dead connection.
    async fn read<T, F>(
        &self,
        target: &Target,
        deadline: Instant,
        call: impl Fn(Wire) -> F + Send + Sync,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let channel = self.channels().get(self.dialer(), target).map_err(Failed::Here)?;
        let limit = deadline.saturating_duration_since(Instant::now());
        let result = match timeout_at(deadline, self.call(&Call { channel, target, limit }, call)).await {
            Ok(result) => result,
            Err(_) => Err(Failed::Expired { member: target.member.clone(), after: self.deadlines().read }),
        };
        if let Err(failed) = &result
            && !failed.is_answer()
        {
            self.channels().forget(&target.pod_uid);
        }
        result
    }

    /// A linearizable read; who served it, or none when etcd refused our credentials after it had
    /// reached the read index: that proves the quorum as well.
    async fn served(&self, target: &Target, deadline: Instant) -> Result<Option<Answerer>, EtcdFailure> {
        match self.read(target, deadline, Wire::linearizable_read).await {
            Ok(who) => {
                verify(target, who)?;
                Ok(Some(who))
            }
            Err(failed) => {
                let answered = failed.is_answer();
                match failed.into_failure() {
                    EtcdFailure::Auth(_) if answered => Ok(None),
                    failure => Err(failure),
                }
            }
        }
    }
}

/// Refuses an answer of another cluster or another member than was recorded.
fn verify(target: &Target, who: Answerer) -> Result<(), EtcdFailure> {
    crate::etcd::verify(target, who, false)
}

/// Asks the first target, and the next as well whenever one failed or was silent for a share of
/// `whole`. The first answer wins; the other calls are dropped.
async fn first_answer<'a, T, F>(
    targets: &'a [Target],
    whole: Duration,
    ask: impl Fn(&'a Target) -> F,
) -> Result<T, EtcdFailure>
where
    F: Future<Output = Result<T, EtcdFailure>>,
{
    let share = PATIENCE.min(whole / u32::try_from(targets.len() + 1).unwrap_or(u32::MAX));
    let mut left = targets.iter();
    let mut asked = FuturesUnordered::new();
    let mut worst: Option<EtcdFailure> = None;
    loop {
        match left.next() {
            Some(target) => asked.push(ask(target)),
            None if asked.is_empty() => break,
            None => {}
        }
        let patience = async {
            if left.len() == 0 { std::future::pending().await } else { tokio::time::sleep(share).await }
        };
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(failure)) => {
                    tracing::debug!(%failure, "a member did not give the list");
                    worst = Some(more_telling(worst, failure));
                }
                None => {}
            },
            () = patience => {}
        }
    }
    Err(worst.unwrap_or_else(|| EtcdFailure::Unreachable("no member to ask".into())))
}

/// Of two failed reads, the one that says more about the cluster.
fn more_telling(old: Option<EtcdFailure>, new: EtcdFailure) -> EtcdFailure {
    let rank = |failure: &EtcdFailure| match failure {
        EtcdFailure::WrongPeer(_) => 6,
        EtcdFailure::Auth(_) => 5,
        EtcdFailure::Refused(Refusal::LearnerAsked) => 2,
        EtcdFailure::Refused(_) => 4,
        EtcdFailure::Ambiguous(_) => 3,
        EtcdFailure::Tls(_) => 1,
        EtcdFailure::Unreachable(_) => 0,
    };
    match old {
        Some(old) if rank(&old) >= rank(&new) => old,
        _ => new,
    }
}
