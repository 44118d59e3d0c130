//! Owns the single calls on one channel: requests, responses and their headers in the operator's
//! own words. Decides nothing. Does I/O.

use std::time::Duration;

use etcd_client::{GetOptions, MemberAddOptions, ResponseHeader};
use etcd_operator_core::{
    etcd::{ListedMember, MemberList, MemberStatus},
    ids::{ClusterId, MemberId, PeerUrl},
};
use tonic::{Status, body::Body, transport::Channel};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::credentials::Token;

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answerer {
    pub(crate) cluster_id: ClusterId,
    pub(crate) member_id: MemberId,
}

/// One call's view of a channel: with its token and its time limit, both sent with the call.
pub(crate) struct Wire {
    service: etcd_client::Channel,
}

/// MemberList as it is on the wire since etcd 3.5. By hand, because etcd-client cannot set
/// `linearizable`: a serializable list may be arbitrarily old.
#[derive(Clone, PartialEq, prost::Message)]
struct MemberListRequest {
    #[prost(bool, tag = "1")]
    linearizable: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MemberListResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    members: Vec<Member>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Member {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, repeated, tag = "3")]
    peer_urls: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    client_urls: Vec<String>,
    #[prost(bool, tag = "5")]
    is_learner: bool,
}

impl Wire {
    /// `limit` is told to the server too: a proposal that waits there for a leader would otherwise
    /// wait for as long as the connection seems to stand.
    pub(crate) fn new(channel: Channel, token: Option<&Token>, limit: Duration) -> Result<Self, Status> {
        let token = token
            .map(|t| http::HeaderValue::from_str(t.secret()))
            .transpose()
            .map_err(|_| Status::invalid_argument("the auth token is not a header value"))?;
        let limit = http::HeaderValue::try_from(format!("{}m", limit.as_millis()))
            .map_err(|_| Status::invalid_argument("the time limit is not a header value"))?;
        let service = channel
            .map_request(move |mut request: http::Request<Body>| {
                request.headers_mut().insert("grpc-timeout", limit.clone());
                if let Some(token) = &token {
                    let mut token = token.clone();
                    token.set_sensitive(true);
                    request.headers_mut().insert("token", token);
                }
                request
            })
            .map_err(tower::BoxError::from);
        Ok(Self { service: etcd_client::Channel::Custom(BoxCloneSyncService::new(service)) })
    }

    async fn client(self) -> Result<etcd_client::Client, etcd_client::Error> {
        etcd_client::Client::from_channel(self.service, None).await
    }

    pub(crate) async fn list(self) -> Result<(Answerer, MemberList), etcd_client::Error> {
        let mut grpc = tonic::client::Grpc::new(self.service);
        grpc.ready().await.map_err(Status::from_error)?;
        let response: MemberListResponse = grpc
            .unary(
                tonic::Request::new(MemberListRequest { linearizable: true }),
                http::uri::PathAndQuery::from_static("/etcdserverpb.Cluster/MemberList"),
                tonic_prost::ProstCodec::default(),
            )
            .await?
            .into_inner();
        let header = response.header.unwrap_or_default();
        let who =
            Answerer { cluster_id: ClusterId(header.cluster_id), member_id: MemberId(header.member_id) };
        let members = response
            .members
            .into_iter()
            .map(|m| ListedMember {
                id: MemberId(m.id),
                name: m.name,
                peer_urls: m.peer_urls.into_iter().map(PeerUrl).collect(),
                client_urls: m.client_urls,
                is_learner: m.is_learner,
            })
            .collect();
        Ok((who, MemberList { cluster_id: who.cluster_id, members }))
    }

    pub(crate) async fn status(self) -> Result<MemberStatus, etcd_client::Error> {
        let response = self.client().await?.status().await?;
        let who = answerer(response.header());
        Ok(MemberStatus {
            cluster_id: who.cluster_id,
            member_id: who.member_id,
            is_learner: response.is_learner(),
            leader: Some(response.leader()).filter(|id| *id != 0).map(MemberId),
            term: response.raft_term(),
            raft_index: response.raft_index(),
            applied_index: response.raft_applied_index(),
            db_size: u64::try_from(response.db_size()).unwrap_or(0),
            db_size_in_use: u64::try_from(response.raft_used_db_size()).unwrap_or(0),
            version: response.version().parse().ok(),
            errors: response.errors().to_vec(),
        })
    }

    /// A linearizable read of next to nothing: the count of one key. etcd reaches the read index
    /// through a quorum before it looks at the key or at who asks for it.
    pub(crate) async fn linearizable_read(self) -> Result<Answerer, etcd_client::Error> {
        let options = GetOptions::new().with_count_only().with_limit(1);
        let response = self.client().await?.get("health", Some(options)).await?;
        Ok(answerer(response.header()))
    }

    pub(crate) async fn add_learner(
        self,
        peer_url: &PeerUrl,
    ) -> Result<(Answerer, MemberId, MemberList), etcd_client::Error> {
        let options = MemberAddOptions::new().with_is_learner();
        let response = self.client().await?.member_add([peer_url.0.clone()], Some(options)).await?;
        let who = answerer(response.header());
        let id = response.member().map_or(MemberId(0), |m| MemberId(m.id()));
        Ok((who, id, members(who, response.member_list())))
    }

    pub(crate) async fn promote(self, id: MemberId) -> Result<(Answerer, MemberList), etcd_client::Error> {
        let response = self.client().await?.member_promote(id.0).await?;
        let who = answerer(response.header());
        Ok((who, members(who, response.members())))
    }

    pub(crate) async fn remove(self, id: MemberId) -> Result<(Answerer, MemberList), etcd_client::Error> {
        let response = self.client().await?.member_remove(id.0).await?;
        let who = answerer(response.header());
        Ok((who, members(who, response.members())))
    }

    /// etcd's answer carries no header.
    pub(crate) async fn move_leader(self, to: MemberId) -> Result<(), etcd_client::Error> {
        self.client().await?.move_leader(to.0).await.map(|_| ())
    }
}

fn answerer(header: Option<&ResponseHeader>) -> Answerer {
    Answerer {
        cluster_id: ClusterId(header.map_or(0, ResponseHeader::cluster_id)),
        member_id: MemberId(header.map_or(0, ResponseHeader::member_id)),
    }
}

fn members(who: Answerer, members: &[etcd_client::Member]) -> MemberList {
    let members = members
        .iter()
        .map(|m| ListedMember {
            id: MemberId(m.id()),
            name: m.name().to_owned(),
            peer_urls: m.peer_urls().iter().cloned().map(PeerUrl).collect(),
            client_urls: m.client_urls().to_vec(),
            is_learner: m.is_learner(),
        })
        .collect();
    MemberList { cluster_id: who.cluster_id, members }
}
