//! TLS and authentication of a cluster: types and the rules between their fields. No I/O, no secrets:
//! only references to Secrets.

use k8s_openapi::api::core::v1::LocalObjectReference;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS on the client port (2379) and on the peer port (2380). Each is plain when its part is absent.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct EtcdClusterTls {
    /// TLS on the client port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientTls>,

    /// TLS on the peer port, always mutual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerTls>,
}

/// TLS on the client port: from Secrets that the user keeps, or from cert-manager.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.serverSecretRef) != has(self.certManager)")
        .message("tls.client needs exactly one of serverSecretRef and certManager"),
    validation = Rule::new("!has(self.certManager) || !has(self.operatorClientSecretRef)")
        .message("tls.client.operatorClientSecretRef does not go together with certManager: set certManager.operatorClientIssuerRef instead")
)]
pub struct ClientTls {
    /// Secret with tls.crt, tls.key and ca.crt of the server. With mutual TLS the certificate needs the
    /// clientAuth usage too, and ca.crt must cover both sides: etcd presents it to itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub server_secret_ref: Option<LocalObjectReference>,

    /// Secret with tls.crt and tls.key that the operator presents. Its presence turns mutual TLS on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub operator_client_secret_ref: Option<LocalObjectReference>,

    /// Let cert-manager issue the certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<ClientCertManagerTls>,
}

/// Certificates of the client port, issued by cert-manager.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertManagerTls {
    /// Issues the server certificate, Secret `<cluster>-server-tls`.
    pub server_issuer_ref: IssuerReference,

    /// Issues the operator's certificate, Secret `<cluster>-operator-client-tls`. Its presence turns mutual
    /// TLS on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_client_issuer_ref: Option<IssuerReference>,
}

/// TLS between members, always mutual.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretRef) != has(self.certManager)")
    .message("tls.peer needs exactly one of secretRef and certManager"))]
pub struct PeerTls {
    /// Secret with tls.crt, tls.key and ca.crt. The certificate needs both serverAuth and clientAuth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub secret_ref: Option<LocalObjectReference>,

    /// Let cert-manager issue the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<PeerCertManagerTls>,
}

/// The peer certificate, issued by cert-manager.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PeerCertManagerTls {
    /// Issues the peer certificate, Secret `<cluster>-peer-tls`.
    pub issuer_ref: IssuerReference,
}

/// Which kind of issuer a reference means.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IssuerKind {
    /// An Issuer in the cluster's namespace.
    #[default]
    Issuer,
    /// A ClusterIssuer.
    ClusterIssuer,
}

/// A cert-manager issuer.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct IssuerReference {
    /// Name of the issuer.
    #[schemars(length(min = 1))]
    pub name: String,

    /// Issuer (in the cluster's namespace) or ClusterIssuer.
    #[serde(default)]
    pub kind: IssuerKind,
}

/// etcd's own authentication. The only user is root.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// Turns authentication on once the cluster has formed. Needs tls.client and rootCredentialsSecretRef.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,

    /// Secret of type kubernetes.io/basic-auth; its key `password` becomes the password of root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::local_object_reference")]
    pub root_credentials_secret_ref: Option<LocalObjectReference>,
}
