//! `testbed`: a real Kubernetes on one machine, in namespaces of its own.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool whose output is for people")]

mod cgroups;
mod components;
mod enclose;
mod images;
mod lifecycle;
mod pki;
mod programs;
mod provisioner;
mod store;
mod supervise;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use etcd_operator_testbed::image::Image;
use etcd_operator_testbed::layout::StateDir;
use etcd_operator_testbed::{Context, Error, Result, Testbed};

/// A real Kubernetes on this machine, for tests, benches and the demo.
///
/// State: $ETCD_OPERATOR_TESTBED_DIR (/var/tmp/etcd-operator-testbed).
/// Binaries: $ETCD_OPERATOR_CACHE (~/.cache/etcd-operator).
#[derive(Parser)]
#[command(name = "testbed")]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build what is missing: about 20 minutes on two cores from nothing
    Build,
    /// Start the testbed and wait until it is ready
    Up {
        /// Number of nodes, 1 to 9; node N is in zone zN
        #[arg(long, default_value_t = 3)]
        nodes: u32,
    },
    /// End the testbed and remove every trace but the cache and the logs of failures
    Down,
    /// Say whether it runs, and how its components are; fails when it is down
    Status,
    /// Run a command inside the testbed, with KUBECONFIG set
    Exec {
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Run kubectl inside the testbed
    Kubectl {
        /// Arguments of kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Put a container image archive on every node
    LoadImage {
        /// An OCI layout or docker archive
        archive: PathBuf,
    },
    /// Write a container image archive from files, without a container engine
    Mkimage(Mkimage),
    /// List the components' log files, or print one
    Logs {
        /// For example kube-apiserver or kubelet1
        component: Option<String>,
    },
    #[command(hide = true)]
    Outer { nodes: u32, host_network: String },
    #[command(hide = true)]
    Init,
    #[command(hide = true)]
    Supervise,
    #[command(hide = true)]
    Join {
        cgroup: String,
        group: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct Mkimage {
    /// The archive to write
    archive: PathBuf,
    /// Name and tag, such as etcd-operator:dev
    reference: String,
    /// SOURCE=DESTINATION[:OCTAL MODE], as often as needed
    #[arg(required = true)]
    files: Vec<String>,
    /// A word of the entrypoint; repeat for more
    #[arg(long, allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// A word of the default arguments; repeat for more
    #[arg(long, allow_hyphen_values = true)]
    cmd: Vec<String>,
    /// NAME=VALUE; repeat for more
    #[arg(long)]
    env: Vec<String>,
    /// UID:GID of the process
    #[arg(long, default_value = "")]
    user: String,
    /// KEY=VALUE; repeat for more
    #[arg(long)]
    label: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Build => wait(lifecycle::build())?,
        Action::Up { nodes } => wait(lifecycle::up(nodes))?,
        Action::Down => wait(lifecycle::down())?,
        Action::Status => return lifecycle::status(),
        Action::Exec { command } => return lifecycle::exec(&command),
        Action::Kubectl { arguments } => {
            let words: Vec<_> = std::iter::once("kubectl".into()).chain(arguments).collect();
            return lifecycle::exec(&words);
        }
        Action::LoadImage { archive } => {
            lifecycle::enter(&StateDir::from_env()?)?;
            wait(async { Testbed::current().await?.load_image(&archive).await })?;
        }
        Action::Mkimage(arguments) => mkimage(&arguments)?,
        Action::Logs { component } => lifecycle::logs(component.as_deref())?,
        Action::Outer { nodes, host_network } => {
            return enclose::outer(&StateDir::from_env()?, nodes, &host_network);
        }
        Action::Init => return enclose::init(),
        Action::Supervise => wait(supervise::run())?,
        Action::Join { cgroup, group, command } => {
            cgroups::Cgroups::new(cgroup)?.join(&group)?;
            let (program, args) = command.split_first().ok_or_else(|| Error::new("no command to run"))?;
            let error = Command::new(program).args(args).exec();
            return Err(Error::new(format!("running {}: {error}", program.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("starting a runtime")?.block_on(future)
}

fn mkimage(arguments: &Mkimage) -> Result<()> {
    let mut image = Image::new(&arguments.reference)
        .entrypoint(&arguments.entrypoint)
        .command(&arguments.cmd)
        .user(&arguments.user);
    for assignment in &arguments.env {
        image = image.env(assignment);
    }
    for label in &arguments.label {
        let (key, value) =
            label.split_once('=').ok_or_else(|| Error::new(format!("{label:?} is not KEY=VALUE")))?;
        image = image.label(key, value);
    }
    for file in &arguments.files {
        let (source, destination, mode) = images::parse_file(file)?;
        image = image.file(&destination, source, mode);
    }
    let digest = image.write(&arguments.archive)?;
    println!("{} {digest}", arguments.reference);
    Ok(())
}
