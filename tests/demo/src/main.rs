//! `demo`: follows one EtcdCluster until it is what its spec says, as a live table on a terminal, or one line
//! for each change where there is none. Reads from the API server and from the members; changes nothing.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool whose output is for people")]

mod member;
mod scene;
mod table;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::scene::{Eyes, Scene};
use crate::table::{changes, table};

/// Shows how an EtcdCluster becomes voters. KUBECONFIG says where; Pod addresses must be reachable.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// Name of the EtcdCluster
    name: String,
    /// Its namespace
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Seconds after which to give up
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

/// From one look to the next: often enough that a learner is seen as one.
const LOOK: Duration = Duration::from_millis(250);

#[tokio::main]
async fn main() -> ExitCode {
    // Before anything may use TLS; that another provider is installed already cannot be.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match follow(&Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Looks and shows until the cluster is settled; whether it is.
async fn follow(arguments: &Arguments) -> Result<bool, scene::Error> {
    let eyes = Eyes::open(&arguments.namespace, &arguments.name).await?;
    let live = std::io::stdout().is_terminal();
    let begin = Instant::now();
    let (mut before, mut height) = (Scene::default(), 0);
    loop {
        let scene = match eyes.look().await {
            Ok(scene) => scene,
            // One look that fails is no news; that nothing is seen any more shows in the clock.
            Err(_) if begin.elapsed() < Duration::from_secs(arguments.limit) => before.clone(),
            Err(error) => return Err(error),
        };
        if live {
            height = redraw(&table(&scene, begin.elapsed()), height);
        } else {
            for line in changes(&before, &scene) {
                println!("{:6.1}s  {line}", begin.elapsed().as_secs_f32());
            }
        }
        if scene.settled {
            println!(
                "\n{} of {} members are voters after {:.0} s.",
                scene.ready,
                scene.replicas,
                begin.elapsed().as_secs_f32()
            );
            return Ok(true);
        }
        if begin.elapsed() > Duration::from_secs(arguments.limit) {
            println!(
                "\nNot there after {} s. The conditions say why:\n{}",
                arguments.limit,
                scene.conditions.join("\n")
            );
            return Ok(false);
        }
        before = scene;
        tokio::time::sleep(LOOK).await;
    }
}

/// Writes the lines over those of the last time; how many lines there are now.
fn redraw(lines: &[String], last: usize) -> usize {
    // Up to the first line of the last table, then clear to the end of the screen.
    let up = if last > 0 { format!("\x1b[{last}A\x1b[J") } else { String::new() };
    println!("{up}{}", lines.join("\n"));
    // A terminal that is gone ends the program with the next look.
    let _ = std::io::stdout().flush();
    lines.len()
}
