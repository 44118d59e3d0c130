//! A fake member behind a small TCP proxy, so that a test can stop it, freeze it, or cut its
//! connections at the moment a request has arrived.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use etcd_client::proto::*;
use etcd_operator_core::{
    ids::{ClusterId, MemberId},
    time::Time,
};
use etcd_operator_etcd::{Channels, Deadlines, Dialer, Etcd, Expected, Target, TlsConfig};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tonic::{
    Request, Response, Status, async_trait,
    transport::{Server, ServerTlsConfig, server::TcpIncoming},
};

/// The cluster of all fakes that are not told otherwise.
pub(crate) const CLUSTER: ClusterId = ClusterId(0xc1);

/// How the fake answers one method; all calls, until it is told otherwise.
#[derive(Clone)]
pub(crate) enum Answer {
    /// As etcd would.
    Ok,
    /// With this code and text.
    Fail(tonic::Code, &'static str),
    /// Never.
    Hang,
    /// By cutting the connection that the request came on.
    Cut,
}

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: &'static str,
    pub(crate) token: Option<String>,
    pub(crate) timeout: Option<String>,
    pub(crate) linearizable: bool,
}

pub(crate) struct State {
    pub(crate) cluster: ClusterId,
    pub(crate) member: MemberId,
    learner: bool,
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<HashMap<&'static str, Answer>>,
    /// The only token that is let in; none lets everyone in.
    token: Mutex<Option<String>>,
    mode: watch::Sender<Mode>,
    connections: Mutex<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Forward,
    Freeze,
    Cut,
}

pub(crate) struct Fake {
    pub(crate) state: Arc<State>,
    pub(crate) address: SocketAddr,
    backend: SocketAddr,
    proxy: JoinHandle<()>,
    server: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.proxy.abort();
        self.server.abort();
        self.state.mode.send_replace(Mode::Cut);
    }
}

impl Fake {
    pub(crate) async fn voter(member: u64) -> Self {
        Self::start(CLUSTER, member, false, None).await
    }

    pub(crate) async fn learner(member: u64) -> Self {
        Self::start(CLUSTER, member, true, None).await
    }

    pub(crate) async fn start(
        cluster: ClusterId,
        member: u64,
        learner: bool,
        tls: Option<ServerTlsConfig>,
    ) -> Self {
        let state = Arc::new(State {
            cluster,
            member: MemberId(member),
            learner,
            seen: Mutex::default(),
            answers: Mutex::default(),
            token: Mutex::default(),
            mode: watch::Sender::new(Mode::Forward),
            connections: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = listener.local_addr().unwrap();
        let mut server = Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).unwrap();
        }
        let server = server
            .add_service(PbClusterServer::from_arc(state.clone()))
            .add_service(PbMaintenanceServer::from_arc(state.clone()))
            .add_service(PbKvServer::from_arc(state.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        let server = tokio::spawn(async move { server.await.unwrap() });
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let proxy = tokio::spawn(proxy(front, backend, state.clone()));
        Self { state, address, backend, proxy, server }
    }

    /// The process is gone: its connections are cut and new ones are refused.
    pub(crate) async fn stop(&mut self) {
        self.proxy.abort();
        let _ = (&mut self.proxy).await;
        self.state.mode.send_replace(Mode::Cut);
    }

    /// It is back at the same address.
    pub(crate) async fn start_again(&mut self) {
        self.state.mode.send_replace(Mode::Forward);
        let front = TcpListener::bind(self.address).await.unwrap();
        self.proxy = tokio::spawn(proxy(front, self.backend, self.state.clone()));
    }

    /// Packets are dropped without a reset, or are no longer.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.state.mode.send_replace(if frozen { Mode::Freeze } else { Mode::Forward });
    }

    pub(crate) fn answer(&self, method: &'static str, answer: Answer) {
        self.state.answers.lock().unwrap().insert(method, answer);
    }

    pub(crate) fn require_token(&self, token: &str) {
        *self.state.token.lock().unwrap() = Some(token.into());
    }

    pub(crate) fn seen(&self, method: &str) -> Vec<Seen> {
        self.state.seen.lock().unwrap().iter().filter(|s| s.method == method).cloned().collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen(method).len()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// This member as its records describe it.
    pub(crate) fn target(&self) -> Target {
        let member = format!("m-{}", self.state.member.0);
        Target {
            member: member.as_str().into(),
            pod_uid: format!("pod-{}", self.address).into(),
            address: self.address,
            server_name: format!("{member}.c.ns.svc"),
            expected: Expected { cluster_id: Some(CLUSTER), member_id: Some(self.state.member) },
        }
    }
}

async fn proxy(front: TcpListener, backend: SocketAddr, state: Arc<State>) {
    loop {
        let (mut client, _) = front.accept().await.unwrap();
        *state.connections.lock().unwrap() += 1;
        let mut mode = state.mode.subscribe();
        tokio::spawn(async move {
            let mut server = TcpStream::connect(backend).await.unwrap();
            loop {
                let now = *mode.borrow_and_update();
                match now {
                    Mode::Forward => tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => return,
                        _ = mode.changed() => {}
                    },
                    Mode::Freeze => drop(mode.changed().await),
                    Mode::Cut => return,
                }
            }
        });
    }
}

impl State {
    async fn arrive<T>(
        &self,
        method: &'static str,
        request: &Request<T>,
        linearizable: bool,
    ) -> Result<(), Status> {
        let header = |name: &str| request.metadata().get(name).map(|v| v.to_str().unwrap().to_owned());
        let token = header("token");
        let seen = Seen { method, token: token.clone(), timeout: header("grpc-timeout"), linearizable };
        self.seen.lock().unwrap().push(seen);
        let wanted = self.token.lock().unwrap().clone();
        if wanted.is_some() && wanted != token {
            return Err(Status::unauthenticated("etcdserver: invalid auth token"));
        }
        let answer = self.answers.lock().unwrap().get(method).cloned().unwrap_or(Answer::Ok);
        match answer {
            Answer::Ok if self.learner && method != "Status" => {
                Err(Status::failed_precondition("etcdserver: rpc not supported for learner"))
            }
            Answer::Ok => Ok(()),
            Answer::Fail(code, text) => Err(Status::new(code, text)),
            Answer::Hang => std::future::pending().await,
            Answer::Cut => {
                self.mode.send_replace(Mode::Cut);
                std::future::pending().await
            }
        }
    }

    fn header(&self) -> Option<PbResponseHeader> {
        Some(PbResponseHeader { cluster_id: self.cluster.0, member_id: self.member.0, ..Default::default() })
    }

    fn members(&self) -> Vec<PbMember> {
        let member = |id: u64, name: &str| PbMember {
            id,
            name: name.into(),
            peer_ur_ls: vec![format!("http://m-{id}.c.ns.svc:2380")],
            ..Default::default()
        };
        vec![member(self.member.0, "named"), member(0xff, "")]
    }
}

fn no<T>() -> Result<T, Status> {
    Err(Status::unimplemented("the fake has no such method"))
}

#[async_trait]
impl PbClusterService for State {
    async fn member_list(
        &self,
        r: Request<PbMemberListRequest>,
    ) -> Result<Response<PbMemberListResponse>, Status> {
        self.arrive("MemberList", &r, r.get_ref().linearizable).await?;
        Ok(Response::new(PbMemberListResponse { header: self.header(), members: self.members() }))
    }
    async fn member_add(
        &self,
        r: Request<PbMemberAddRequest>,
    ) -> Result<Response<PbMemberAddResponse>, Status> {
        self.arrive("MemberAdd", &r, false).await?;
        assert!(r.get_ref().is_learner, "a member is never added as a voter");
        let member = PbMember { id: 0xff, peer_ur_ls: r.into_inner().peer_ur_ls, ..Default::default() };
        let (header, members) = (self.header(), self.members());
        Ok(Response::new(PbMemberAddResponse { header, member: Some(member), members }))
    }
    async fn member_remove(
        &self,
        r: Request<PbMemberRemoveRequest>,
    ) -> Result<Response<PbMemberRemoveResponse>, Status> {
        self.arrive("MemberRemove", &r, false).await?;
        Ok(Response::new(PbMemberRemoveResponse { header: self.header(), members: self.members() }))
    }
    async fn member_update(
        &self,
        _: Request<PbMemberUpdateRequest>,
    ) -> Result<Response<PbMemberUpdateResponse>, Status> {
        no()
    }
    async fn member_promote(
        &self,
        r: Request<PbMemberPromoteRequest>,
    ) -> Result<Response<PbMemberPromoteResponse>, Status> {
        self.arrive("MemberPromote", &r, false).await?;
        Ok(Response::new(PbMemberPromoteResponse { header: self.header(), members: self.members() }))
    }
}

type Snapshots = futures::stream::Empty<Result<PbSnapshotResponse, Status>>;
type Ranges = futures::stream::Empty<Result<PbRangeStreamResponse, Status>>;

#[async_trait]
impl PbMaintenanceService for State {
    type SnapshotStream = Snapshots;
    async fn status(&self, r: Request<PbStatusRequest>) -> Result<Response<PbStatusResponse>, Status> {
        self.arrive("Status", &r, false).await?;
        Ok(Response::new(PbStatusResponse {
            header: self.header(),
            version: "3.6.16".into(),
            leader: 1,
            raft_applied_index: 7,
            db_size: 4096,
            is_learner: self.learner,
            ..Default::default()
        }))
    }
    async fn move_leader(
        &self,
        r: Request<PbMoveLeaderRequest>,
    ) -> Result<Response<PbMoveLeaderResponse>, Status> {
        self.arrive("MoveLeader", &r, false).await?;
        // etcd leaves the header out here.
        Ok(Response::new(PbMoveLeaderResponse { header: None }))
    }
    async fn alarm(&self, _: Request<PbAlarmRequest>) -> Result<Response<PbAlarmResponse>, Status> {
        no()
    }
    async fn defragment(
        &self,
        _: Request<PbDefragmentRequest>,
    ) -> Result<Response<PbDefragmentResponse>, Status> {
        no()
    }
    async fn hash(&self, _: Request<PbHashRequest>) -> Result<Response<PbHashResponse>, Status> {
        no()
    }
    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> Result<Response<PbHashKvResponse>, Status> {
        no()
    }
    async fn snapshot(&self, _: Request<PbSnapshotRequest>) -> Result<Response<Snapshots>, Status> {
        no()
    }
    async fn downgrade(
        &self,
        _: Request<PbDowngradeRequest>,
    ) -> Result<Response<PbDowngradeResponse>, Status> {
        no()
    }
}

#[async_trait]
impl PbKvService for State {
    type RangeStreamStream = Ranges;
    async fn range(&self, r: Request<PbRangeRequest>) -> Result<Response<PbRangeResponse>, Status> {
        self.arrive("Range", &r, !r.get_ref().serializable).await?;
        Ok(Response::new(PbRangeResponse { header: self.header(), ..Default::default() }))
    }
    async fn range_stream(&self, _: Request<PbRangeRequest>) -> Result<Response<Ranges>, Status> {
        no()
    }
    async fn put(&self, _: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        no()
    }
    async fn delete_range(&self, _: Request<PbDeleteRequest>) -> Result<Response<PbDeleteResponse>, Status> {
        no()
    }
    async fn txn(&self, _: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        no()
    }
    async fn compact(
        &self,
        _: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        no()
    }
}

/// Deadlines a test can wait for: long enough for a busy machine, short enough for a person.
pub(crate) fn short() -> Deadlines {
    Deadlines {
        connect: Duration::from_millis(500),
        read: Duration::from_millis(900),
        membership: Duration::from_millis(900),
        ..Deadlines::default()
    }
}

/// The adapter with the operator's own deadlines.
pub(crate) fn etcd(tls: Option<TlsConfig>) -> Etcd {
    with(Deadlines::default(), tls)
}

/// The adapter with these deadlines.
pub(crate) fn with(deadlines: Deadlines, tls: Option<TlsConfig>) -> Etcd {
    Etcd::new(Arc::new(Channels::new()), Dialer::new(deadlines, tls), Arc::new(|| Time(7)))
}
