//! What a member's own process says on its metrics port: whether it is a learner, a voter or the leader, and
//! how large its database is. Plain HTTP, one short connection for each look.

use std::net::IpAddr;
use std::time::Duration;

use etcd_operator_api::names::METRICS_PORT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A member answers in milliseconds, or it is not up yet; on a machine that builds beside it, a little later.
const LIMIT: Duration = Duration::from_secs(1);

/// What a process says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Voice {
    pub(crate) learner: bool,
    pub(crate) leader: bool,
    /// Bytes of the database file.
    pub(crate) db_size: u64,
}

/// Asks the process at this address; none while it does not answer.
pub(crate) async fn ask(address: IpAddr) -> Option<Voice> {
    let text = tokio::time::timeout(LIMIT, metrics(address)).await.ok()?.ok()?;
    read(&text)
}

async fn metrics(address: IpAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((address, METRICS_PORT)).await?;
    // HTTP/1.0, so that the server closes the connection at the end of its answer.
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

fn read(text: &str) -> Option<Voice> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<f64>().ok()
    };
    let is = |name: &str| value(name).map(|v| v > 0.5);
    // Before it has found its cluster, a process does not know whether it is a learner.
    is("etcd_server_has_leader").filter(|has| *has)?;
    Some(Voice {
        learner: is("etcd_server_is_learner")?,
        leader: is("etcd_server_is_leader")?,
        // Sizes are whole numbers far below 2^53, so the float carries them exactly.
        db_size: value("etcd_mvcc_db_total_size_in_bytes").map_or(0, |v| v as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_and_size_are_read_from_the_metrics() {
        let text = "HTTP/1.0 200 OK\r\n\r\n# HELP etcd_server_is_leader x\netcd_server_is_leader 0\n\
                    etcd_server_has_leader 1\netcd_server_is_learner 1\netcd_mvcc_db_total_size_in_bytes 2.0480e+04\n";
        assert_eq!(read(text), Some(Voice { learner: true, leader: false, db_size: 20_480 }));
        assert_eq!(read(&text.replace("has_leader 1", "has_leader 0")), None, "it has not found its cluster");
    }

    #[test]
    fn a_page_that_is_not_etcds_says_nothing() {
        assert_eq!(read("HTTP/1.0 404 Not Found\r\n\r\n"), None);
    }
}
