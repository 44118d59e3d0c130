//! One operator's way to the API server, which a test can cut: a relay of bytes with a kubeconfig of its own. It has
//! an address of its own too, so that the audit log tells this operator's requests from another's.

use std::net::SocketAddr;
use std::path::PathBuf;

use etcd_operator_testbed::Testbed;
use kube::config::Kubeconfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

/// A relay, until it is dropped.
pub struct Link {
    source: String,
    kubeconfig: PathBuf,
    open: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Link {
    /// Opens link `number` of this namespace's operators, from 2 to 254: it asks from 127.0.0.`number`.
    pub async fn open(testbed: &Testbed, namespace: &str, number: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let theirs = testbed.operator_kubeconfig();
        let text = std::fs::read_to_string(&theirs).unwrap();
        let clusters = Kubeconfig::from_yaml(&text).unwrap().clusters;
        let server = clusters.into_iter().find_map(|c| c.cluster?.server).expect("an API server");
        let text = text.replace(&server, &format!("https://{}", listener.local_addr().unwrap()));
        let kubeconfig = theirs.with_file_name(format!("{namespace}-{number}"));
        std::fs::write(&kubeconfig, text).unwrap();
        let server = server.trim_start_matches("https://").parse().unwrap();
        let (open, is_open) = watch::channel(true);
        let source = format!("127.0.0.{number}");
        let task = tokio::spawn(relay(listener, source.clone(), server, is_open));
        Self { source, kubeconfig, open, task }
    }

    /// The variable with which an operator takes this way.
    pub fn variable(&self) -> (&'static str, &str) {
        ("KUBECONFIG", self.kubeconfig.to_str().expect("a path in UTF-8"))
    }

    /// The address from which its requests come.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// From now on nothing passes, in either direction, and nobody is told: packets are lost on the way.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Ends the cut. What was sent meanwhile arrives now.
    pub fn heal(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
        // It ends with the testbed in any case.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

async fn relay(listener: TcpListener, source: String, server: SocketAddr, open: watch::Receiver<bool>) {
    // Dropping the set with this task ends the connections.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (source, open) = (source.clone(), open.clone());
        connections.spawn(async move {
            let socket = TcpSocket::new_v4().ok()?;
            socket.bind(SocketAddr::new(source.parse().ok()?, 0)).ok()?;
            let upstream = socket.connect(server).await.ok()?;
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = upstream.into_split();
            tokio::join!(pass(from_client, to_server, open.clone()), pass(from_server, to_client, open));
            Some(())
        });
    }
}

/// Passes bytes on while the link is open; waits with them in hand while it is not.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut open: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let whole = bytes.get(..count).unwrap_or_default();
        if open.wait_for(|open| *open).await.is_err() || to.write_all(whole).await.is_err() {
            return;
        }
    }
}
