//! Orders to the testbed's supervisor: one JSON line in, one JSON line out, over a socket that is
//! only reachable inside the testbed. Here are the words and the asking side.

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::error::{Context, Error, Result};
use crate::layout::CONTROL_SOCKET;

/// What the supervisor can be asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// End a node at once, as a power cut does: kubelet, runtime and every container.
    KillNode(u32),
    /// End only the kubelet: containers go on, the node soon counts as not ready.
    KillKubelet(u32),
    /// Start whatever of the node does not run.
    StartNode(u32),
    /// Say which components run.
    Status,
}

/// The answer to an [`Order`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Why the order was not carried out.
    pub error: Option<String>,
    /// Every component, in order of name, and its state.
    pub components: Vec<(String, String)>,
}

/// Sends an order and waits until it is carried out.
///
/// # Errors
/// When no supervisor listens (this process is not inside the testbed), or it could not comply.
pub async fn order(order: &Order) -> Result<Answer> {
    let stream = UnixStream::connect(CONTROL_SOCKET).await.context("reaching the testbed's supervisor")?;
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_string(order).context("encoding an order")?;
    line.push('\n');
    write.write_all(line.as_bytes()).await.context("sending an order to the testbed's supervisor")?;
    let mut reply = String::new();
    BufReader::new(read).read_line(&mut reply).await.context("waiting for the testbed's supervisor")?;
    let answer: Answer = serde_json::from_str(&reply).context("reading the supervisor's answer")?;
    match answer.error {
        Some(error) => Err(Error::new(format!("{order:?}: {error}"))),
        None => Ok(answer),
    }
}
