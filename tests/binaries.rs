//! Each binary alone: what it needs of the process is in place before it needs it. Needs no cluster.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

fn words(output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn the_operator_says_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_etcd-operator")).arg("--version").output().unwrap();
    assert!(words(&output).contains(env!("CARGO_PKG_VERSION")) && output.status.success(), "{output:?}");
}

#[test]
fn crdgen_refuses_a_flag_that_it_does_not_know() {
    let output = Command::new(env!("CARGO_BIN_EXE_crdgen")).arg("--help").output().unwrap();
    assert!(words(&output).contains("usage") && !output.status.success(), "{output:?}");
}

// CL-05: rustls panics at its first use when no provider, or more than one, was compiled in.
#[test]
fn the_operator_begins_a_tls_handshake_and_ends_when_asked_without_a_panic() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, first_bytes) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut first = [0];
            if stream.read_exact(&mut first).is_ok() {
                let _ = sender.send(first[0]);
            }
        }
    });
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a-server-that-never-answers.kubeconfig");
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'https://{address}', insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: u, user: {{}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]\n"
    );
    std::fs::write(&path, config).unwrap();
    let operator = Command::new(env!("CARGO_BIN_EXE_etcd-operator"))
        .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
        .env("KUBECONFIG", &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let first = first_bytes.recv_timeout(Duration::from_secs(60));
    let asked = Command::new("kill").args(["-TERM", &operator.id().to_string()]).status().unwrap();
    let output = operator.wait_with_output().unwrap();
    let text = words(&output);
    // 22 is the content type of a TLS handshake.
    assert_eq!(first, Ok(22), "no handshake began: {text}");
    assert!(asked.success() && output.status.success(), "{}: {text}", output.status);
}
