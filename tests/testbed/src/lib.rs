//! A real Kubernetes on one machine, for tests, benches and the demo.

pub mod control;
pub mod image;
pub mod layout;

mod error;

pub use error::{Context, Error, Result};

use std::path::Path;

/// A client with the identity of this kubeconfig.
///
/// # Errors
/// When the file cannot be read or names no usable identity. Nothing is sent yet.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let doing = format!("reading {}", kubeconfig.display());
    let config = kube::config::Kubeconfig::read_from(kubeconfig).context(&doing)?;
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default())
        .await
        .context(&doing)?;
    kube::Client::try_from(config).context("making a client")
}
