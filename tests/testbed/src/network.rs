//! Cutting a Pod off from the other Pods, through an nft table of our own in the testbed's network
//! namespace. Touches no interface, and no table that it did not make.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::layout;

/// Made anew by every call, which nft takes as "make sure it is there".
const TABLE: &str = "
table inet testbed_partition {
  set cut { type ipv4_addr; }
  chain between { type filter hook forward priority -10; policy accept; }
}
";
/// Pods of the testbed have addresses in this network.
const RULES: &str = "
flush chain inet testbed_partition between
add rule inet testbed_partition between ip saddr @cut ip daddr 10.99.0.0/16 drop
add rule inet testbed_partition between ip daddr @cut ip saddr 10.99.0.0/16 drop
";

/// A Pod that no other Pod can reach, and that reaches none. The kubelet and processes outside Pods
/// still do, so probes go on and a Pod stays ready if they pass. Healed when dropped.
#[derive(Debug)]
#[must_use = "dropping it heals the partition"]
pub struct Partition {
    address: Ipv4Addr,
    healed: bool,
}

impl Partition {
    /// Cuts off the Pod with this address.
    ///
    /// # Errors
    /// When this process is not inside a testbed, the address is not a Pod's, or nft fails.
    pub fn of(address: &str) -> Result<Self> {
        layout::running()?;
        let address: Ipv4Addr = address.parse().context(format_args!("Pod address {address:?}"))?;
        if address.octets()[..2] != [10, 99] || address.octets()[2] == 0 {
            return Err(Error::new(format!("{address} is not the address of a Pod")));
        }
        nft(&format!("{TABLE}{RULES}add element inet testbed_partition cut {{ {address} }}\n"))?;
        Ok(Partition { address, healed: false })
    }

    /// Ends the partition.
    ///
    /// # Errors
    /// When nft fails.
    pub fn heal(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        if !self.healed {
            nft(&format!("delete element inet testbed_partition cut {{ {} }}\n", self.address))?;
            self.healed = true;
        }
        Ok(())
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, address = %self.address, "the partition was not healed");
        }
    }
}

fn nft(commands: &str) -> Result<()> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running nft")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(commands.as_bytes()).context("writing to nft")?;
    }
    let out = child.wait_with_output().context("waiting for nft")?;
    if out.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("nft: {}", String::from_utf8_lossy(&out.stderr).trim())))
}
