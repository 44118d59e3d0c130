//! TLS: each member's own name on an IP that no certificate names.

use etcd_operator_core::{
    etcd::{EtcdFailure, Look},
    ids::MemberId,
};
use etcd_operator_etcd::TlsConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::fake::{CLUSTER, Fake, etcd};

struct Pki(CertifiedIssuer<'static, KeyPair>);

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn ca(&self) -> String {
        self.0.pem()
    }

    fn leaf(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (cert.pem(), key.serialize_pem())
    }

    /// A member whose certificate has its own name alone.
    async fn member(&self, n: u64, mutual: bool) -> Fake {
        let (cert, key) = self.leaf(&format!("m-{n}.c.ns.svc"));
        let mut tls = ServerTlsConfig::new().identity(Identity::from_pem(cert, key));
        if mutual {
            tls = tls.client_ca_root(Certificate::from_pem(self.ca()));
        }
        Fake::start(CLUSTER, n, false, Some(tls)).await
    }

    fn client(&self, with_certificate: bool) -> Option<TlsConfig> {
        let identity = with_certificate.then(|| self.leaf("operator"));
        Some(TlsConfig { ca: self.ca(), identity })
    }
}

// CL-03
#[tokio::test]
async fn members_with_individual_certificates_are_each_verified_by_their_own_name() {
    let pki = Pki::new();
    let (reader, mut writer) = etcd(pki.client(true)).into_ports();
    for n in 1..=3 {
        let fake = pki.member(n, true).await;
        assert!(reader.look(&fake.target()).await.serves(), "member {n}");
        writer.remove(&[fake.target()], MemberId(9)).await.unwrap();
        assert_eq!(fake.count("MemberRemove"), 1);
    }
}

#[tokio::test]
async fn a_certificate_of_another_name_is_our_trouble_and_not_the_members_silence() {
    let pki = Pki::new();
    let fake = pki.member(1, false).await;
    let mut target = fake.target();
    target.server_name = "m-2.c.ns.svc".into();
    let (reader, mut writer) = etcd(pki.client(false)).into_ports();
    assert!(matches!(reader.look(&target).await, Look::Unknown { .. }));
    let failure = writer.remove(&[target], MemberId(9)).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Tls(_)), "{failure:?}");
    assert_eq!(fake.count("MemberRemove") + fake.count("Status"), 0);
}

#[tokio::test]
async fn an_untrusted_ca_is_our_trouble_too() {
    let fake = Pki::new().member(1, false).await;
    let failure = etcd(Pki::new().client(false)).into_reader().list(&[fake.target()]).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Tls(_)), "{failure:?}");
}

#[tokio::test]
async fn a_missing_client_certificate_is_told_from_an_outage() {
    let pki = Pki::new();
    let fake = pki.member(1, true).await;
    let reader = etcd(pki.client(false)).into_reader();
    let failure = reader.list(&[fake.target()]).await.unwrap_err();
    assert!(matches!(failure, EtcdFailure::Tls(_)), "{failure:?}");
    assert!(matches!(reader.look(&fake.target()).await, Look::Unknown { .. }));
}

#[tokio::test]
async fn a_member_that_speaks_tls_where_we_do_not_is_not_taken_for_a_dead_one() {
    let fake = Pki::new().member(1, false).await;
    assert!(matches!(etcd(None).into_reader().look(&fake.target()).await, Look::Unknown { .. }));
}
