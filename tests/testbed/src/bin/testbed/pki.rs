//! A throw-away certificate authority, certificates and kubeconfigs, made anew for every start.
//! Writes below the state directory only. None of the keys is worth protecting beyond file modes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use etcd_operator_testbed::layout::StateDir;
use etcd_operator_testbed::{Context, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::supervise::API_SERVER;

/// Group of those to whom everything is allowed.
const MASTERS: &str = "system:masters";

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
    directory: PathBuf,
}

/// Makes everything for this many nodes.
pub(crate) fn create(state: &StateDir, nodes: u32) -> Result<()> {
    let authority = Authority::new(state.pki())?;
    authority.service_account_key()?;

    let names = [
        "10.99.0.1",
        "10.98.0.1",
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    authority.server("apiserver", "kube-apiserver", None, &names)?;
    authority.client("apiserver-kubelet", "apiserver-kubelet", Some(MASTERS))?;
    // The operator has a name of its own, so that the audit log tells its requests from others,
    // and no group: what it may do is decided by RBAC, as in a real cluster.
    for (file, user, group) in [
        ("admin", "admin", Some(MASTERS)),
        ("supervisor", "testbed:supervisor", Some(MASTERS)),
        ("operator", "operator-under-test", None),
        ("kube-controller-manager", "system:kube-controller-manager", None),
        ("kube-scheduler", "system:kube-scheduler", None),
        ("kube-proxy", "system:kube-proxy", None),
        ("coredns", "testbed:coredns", None),
    ] {
        authority.kubeconfig(file, user, group)?;
    }
    for n in 1..=nodes {
        let user = format!("system:node:node{n}");
        authority.kubeconfig(&format!("kubelet{n}"), &user, Some("system:nodes"))?;
        let names = [format!("10.99.0.{n}"), format!("node{n}")];
        let names = names.each_ref().map(String::as_str);
        authority.server(&format!("kubelet-server{n}"), &user, Some("system:nodes"), &names)?;
    }
    Ok(())
}

impl Authority {
    fn new(directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory).context(format_args!("creating {}", directory.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("making the authority's key")?;
        let certificate = params.self_signed(&key).context("making the authority")?;
        let authority = Authority {
            certificate,
            directory,
            issuer: Issuer::new(params, KeyPair::from_pem(&key.serialize_pem()).context("copying a key")?),
        };
        authority.store("ca.crt", &authority.certificate.pem())?;
        authority.store("ca.key", &key.serialize_pem())?;
        Ok(authority)
    }

    /// Service account tokens are signed with a key of their own.
    fn service_account_key(&self) -> Result<()> {
        let key = KeyPair::generate().context("making the service account key")?;
        self.store("sa.key", &key.serialize_pem())?;
        self.store("sa.pub", &key.public_key_pem())
    }

    fn server(&self, file: &str, user: &str, group: Option<&str>, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.issue(file, user, group, &names, ExtendedKeyUsagePurpose::ServerAuth).map(drop)
    }

    fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<(String, String)> {
        self.issue(file, user, group, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        file: &str,
        user: &str,
        group: Option<&str>,
        names: &[String],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<(String, String)> {
        let doing = format!("making the certificate {file}");
        let mut params = CertificateParams::new(names).context(&doing)?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().context(&doing)?;
        let certificate = params.signed_by(&key, &self.issuer).context(&doing)?.pem();
        let key = key.serialize_pem();
        self.store(&format!("{file}.crt"), &certificate)?;
        self.store(&format!("{file}.key"), &key)?;
        Ok((certificate, key))
    }

    fn kubeconfig(&self, file: &str, user: &str, group: Option<&str>) -> Result<()> {
        self.client(file, user, group)?;
        let path = |name: String| self.directory.join(name);
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": file}}],
            "clusters": [{"name": "testbed", "cluster": {
                "server": API_SERVER, "certificate-authority": path("ca.crt".into())}}],
            "users": [{"name": file, "user": {
                "client-certificate": path(format!("{file}.crt")), "client-key": path(format!("{file}.key"))}}],
        });
        self.store(&format!("{file}.kubeconfig"), &config.to_string())
    }

    fn store(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path);
        file.and_then(|mut f| f.write_all(text.as_bytes()))
            .context(format_args!("writing {}", path.display()))
    }
}
