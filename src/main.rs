//! The operator's binary: reads the command line, starts logging, runs, and says how it ended.

mod operator {
    pub(crate) mod args;
    pub(crate) mod domain;
    pub(crate) mod http;
    pub(crate) mod run;
    pub(crate) mod telemetry;
}

use std::process::ExitCode;

use clap::Parser;
use operator::{
    args::{Args, from_go},
    run::{End, run},
    telemetry,
};

/// Threads that run the actors, whatever the node has. The work is waiting; a thread for each of a large
/// node's cores would cost a stack and a heap each. Two, so that a long decode does not hold up the Lease.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    // Before anything may use TLS; a second provider in the process would make rustls panic.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return fail("a TLS provider is installed already");
    }
    let (args, ignored) = from_go(std::env::args_os());
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    if let Err(error) = etcd_operator_failpoints::check_environment() {
        return fail(&error);
    }
    if let Err(error) = telemetry::start(&args.log, args.log_text) {
        return fail(&error);
    }
    for flag in ignored {
        tracing::warn!(flag, "this flag of the Go operator means nothing here and is ignored");
    }
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&format!("no runtime: {error}")),
        };
    let code = match runtime.block_on(run(args)) {
        Ok(End::Asked) => ExitCode::SUCCESS,
        Ok(End::LeaseLost) => {
            tracing::error!(reason = "NotOwner", "the Lease is lost; ending, to be started anew");
            ExitCode::FAILURE
        }
        Err(error) => fail(&error.to_string()),
    };
    // What still runs must not keep the process from ending.
    runtime.shutdown_background();
    code
}

/// Says what went wrong, where a person and `kubectl describe` see it.
fn fail(words: &str) -> ExitCode {
    use std::io::Write;
    // There may be no logging yet, and nothing can be done if even stderr is closed.
    let _ = writeln!(std::io::stderr(), "etcd-operator: {words}");
    ExitCode::FAILURE
}
