//! The command lines of the testbed's programs, each flag that is not obvious with its reason.

use etcd_operator_testbed::Result;
use etcd_operator_testbed::layout::etcd_versions;

use crate::supervise::Supervisor;

impl Supervisor {
    fn file(&self, name: &str) -> String {
        self.state.run().join(name).to_string_lossy().into_owned()
    }

    pub(crate) fn start_etcd(&self) -> Result<()> {
        let newest = etcd_versions().last().unwrap_or_default();
        let etcd = self.plan.binaries.join(format!("etcd-{newest}/etcd"));
        let data = format!("--data-dir={}", self.file("etcd"));
        self.components.start(
            "etcd",
            None,
            &etcd.to_string_lossy(),
            &args(&[
                "--name=testbed",
                &data,
                "--listen-client-urls=http://127.0.0.1:17379",
                "--advertise-client-urls=http://127.0.0.1:17379",
                "--listen-peer-urls=http://127.0.0.1:17380",
                "--initial-advertise-peer-urls=http://127.0.0.1:17380",
                "--initial-cluster=testbed=http://127.0.0.1:17380",
                // Nothing here outlives the testbed.
                "--unsafe-no-fsync",
                "--log-level=warn",
            ]),
        )
    }

    pub(crate) fn start_api_server(&self) -> Result<()> {
        let pki = |flag: &str, file: &str| format!("--{flag}={}", self.file(&format!("pki/{file}")));
        let mut list = args(&[
            "--etcd-servers=http://127.0.0.1:17379",
            "--bind-address=10.99.0.1",
            "--advertise-address=10.99.0.1",
            "--secure-port=7443",
            "--service-cluster-ip-range=10.98.0.0/16",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            // A Pod leaves a lost node after 30 s and not after 5 min: tests wait for it.
            "--default-not-ready-toleration-seconds=30",
            "--default-unreachable-toleration-seconds=30",
            "--shutdown-delay-duration=0s",
            "--v=1",
        ]);
        list.extend([
            pki("tls-cert-file", "apiserver.crt"),
            pki("tls-private-key-file", "apiserver.key"),
            pki("client-ca-file", "ca.crt"),
            // Without an authority for front proxies the components complain for ever. There is none.
            "--requestheader-allowed-names=none".to_owned(),
            pki("requestheader-client-ca-file", "ca.crt"),
            pki("kubelet-client-certificate", "apiserver-kubelet.crt"),
            pki("kubelet-client-key", "apiserver-kubelet.key"),
            pki("service-account-key-file", "sa.pub"),
            pki("service-account-signing-key-file", "sa.key"),
            format!("--audit-policy-file={}", self.file("audit-policy.yaml")),
            format!("--audit-log-path={}", self.state.audit_log().display()),
        ]);
        self.components.start("kube-apiserver", None, "kube-apiserver", &list)
    }

    pub(crate) fn start_control_plane(&self) -> Result<()> {
        let config = |flag: &str, user: &str| format!("--{flag}={}", self.state.kubeconfig(user).display());
        let user = "kube-controller-manager";
        let mut list = args(&[
            "--bind-address=127.0.0.1",
            "--secure-port=17257",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=false",
            // At the default of 20 a second it takes 5 s to start its controllers.
            "--kube-api-qps=300",
            "--kube-api-burst=600",
            // A node that says nothing for 20 s is lost; 5 s is the kubelet's interval.
            "--node-monitor-period=2s",
            "--node-monitor-grace-period=20s",
            "--v=1",
        ]);
        list.extend([
            config("kubeconfig", user),
            config("authentication-kubeconfig", user),
            config("authorization-kubeconfig", user),
            format!("--service-account-private-key-file={}", self.file("pki/sa.key")),
            format!("--root-ca-file={}", self.file("pki/ca.crt")),
            format!("--cluster-signing-cert-file={}", self.file("pki/ca.crt")),
            format!("--cluster-signing-key-file={}", self.file("pki/ca.key")),
        ]);
        self.components.start(user, None, user, &list)?;

        let user = "kube-scheduler";
        let mut list =
            args(&["--bind-address=127.0.0.1", "--secure-port=17259", "--leader-elect=false", "--v=1"]);
        list.extend([
            config("kubeconfig", user),
            config("authentication-kubeconfig", user),
            config("authorization-kubeconfig", user),
        ]);
        self.components.start(user, None, user, &list)?;

        let list = [format!("--config={}", self.file("kube-proxy.yaml")), "--v=1".into()];
        self.components.start("kube-proxy", None, "kube-proxy", &list)?;
        self.components.start("coredns", None, "coredns", &["-conf".into(), self.file("Corefile")])
    }

    /// Kubelet and runtime of a node have a group of their own, to be killed with all their children.
    pub(crate) fn daemons(n: u32) -> String {
        format!("system/node{n}")
    }

    pub(crate) fn start_containerd(&self, n: u32) -> Result<()> {
        let list = ["--config".into(), self.file(&format!("node{n}/containerd.toml"))];
        self.components.start(&format!("containerd{n}"), Some(&Self::daemons(n)), "containerd", &list)
    }

    pub(crate) fn start_kubelet(&self, n: u32) -> Result<()> {
        let folder = self.state.node(n);
        let list = [
            format!("--config={}", folder.join("kubelet.yaml").display()),
            format!("--kubeconfig={}", self.state.kubeconfig(&format!("kubelet{n}")).display()),
            format!("--root-dir={}", folder.join("kubelet").display()),
            format!("--cert-dir={}", folder.join("kubelet-pki").display()),
            format!("--hostname-override=node{n}"),
            format!("--node-ip=10.99.0.{n}"),
            format!("--node-labels=topology.kubernetes.io/region=r1,topology.kubernetes.io/zone=z{n}"),
            "--v=2".into(),
        ];
        self.components.start(&format!("kubelet{n}"), Some(&Self::daemons(n)), "kubelet", &list)
    }
}

fn args(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}
