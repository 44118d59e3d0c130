//! The image store of the nodes' runtimes: filled once, then copied. Writes into the cache and into the
//! nodes' folders.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use etcd_operator_testbed::{Context, Error, Node, Result};

use crate::supervise::Supervisor;

impl Supervisor {
    /// Gives every node the standard images before its runtime starts. Importing them costs seconds
    /// of CPU a node, so it is done once for all testbeds: the runtime's store is kept in the cache and
    /// copied as hard links, since the runtime replaces files of a store and never writes into them,
    /// except for its databases.
    pub(crate) async fn image_store(&self) -> Result<()> {
        let store = self.plan.binaries.join("store");
        if !store.exists() {
            self.start_containerd(1)?;
            self.runtime_ready(1).await?;
            for archive in &self.plan.images {
                Node::new(1).load_image(archive).await?;
            }
            self.components.stopping("containerd1");
            self.cgroups.kill(&Self::daemons(1)).await?;
            self.components.ended("containerd1").await;
            let root = self.state.node(1).join("containerd");
            let part = self.plan.binaries.join(format!("store.{}", std::process::id()));
            copy_store(&root, &part, false).await?;
            // Another testbed may have been faster.
            if fs::rename(&part, &store).is_err() {
                fs::remove_dir_all(&part).context(format_args!("removing {}", part.display()))?;
            }
            fs::remove_dir_all(&root).context(format_args!("removing {}", root.display()))?;
        }
        for n in self.nodes() {
            copy_store(&store, &self.state.node(n).join("containerd"), true).await?;
        }
        Ok(())
    }
}

/// Copies what a runtime's store holds of images. Links fail between file systems; then it copies.
async fn copy_store(from: &Path, to: &Path, link: bool) -> Result<()> {
    let snapshots = "io.containerd.snapshotter.v1.overlayfs";
    let parts = ["io.containerd.content.v1.content", "io.containerd.metadata.v1.bolt", snapshots];
    fs::create_dir_all(to).context(format_args!("creating {}", to.display()))?;
    let mut done = false;
    for options in if link { &["-al", "-a"][..] } else { &["-a"] } {
        let mut copy = tokio::process::Command::new("cp");
        copy.arg(options).arg("-f").args(parts.map(|p| from.join(p))).arg(to).stderr(Stdio::null());
        if copy.status().await.context("running cp")?.success() {
            done = true;
            break;
        }
    }
    if !done {
        return Err(Error::new(format!("copying {} to {} failed", from.display(), to.display())));
    }
    for database in
        ["io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db"]
    {
        let (source, own) = (from.join(database), to.join(database));
        fs::remove_file(&own).context(format_args!("removing {}", own.display()))?;
        fs::copy(&source, &own).context(format_args!("copying {}", source.display()))?;
    }
    Ok(())
}
