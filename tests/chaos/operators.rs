//! The operator, as a Deployment has it: who ends is started again, and for some faults a second one waits. Each has a
//! way to the API server of its own, which can be cut.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use etcd_operator_testbed::OperatorProcess;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::{Instant, sleep, timeout_at};

use crate::figures::say;
use crate::support::Scene;
use crate::support::frozen::Frozen;
use crate::support::link::Link;

/// The Lease lasts 15 s from its last renewal; the rest is for the second one's next look at it on a busy machine.
const TAKEOVER: Duration = Duration::from_secs(40);
/// One that has lost its Lease notices it as soon as it runs.
const NOTICES: Duration = Duration::from_secs(20);
/// A kubelet's pause before it starts a container again.
const RESTART: Duration = Duration::from_secs(1);
/// How much of a log's end tells why a process ended.
const TAIL: u64 = 16 * 1024;

/// One operator process.
struct Operator {
    process: OperatorProcess,
    link: Link,
    uid: String,
    /// Where in its log the present life begins.
    life: u64,
}

/// A frozen operator.
pub(crate) struct Asleep {
    frozen: Frozen,
    operator: Operator,
}

/// Every operator of the run.
pub(crate) struct Operators {
    active: Operator,
    started: u8,
    armed: VecDeque<String>,
    losing: Vec<String>,
    /// Deaths at a failpoint.
    pub(crate) at_failpoints: usize,
    /// Leases that were lost.
    pub(crate) leases_lost: usize,
}

impl Operators {
    /// Starts the first one.
    pub(crate) async fn start(scene: &mut Scene) -> Self {
        let active = start(scene, 2).await;
        let (armed, losing) = (VecDeque::new(), Vec::new());
        Self { active, started: 1, armed, losing, at_failpoints: 0, leases_lost: 0 }
    }

    /// Sees to it that one runs. Returns only when one ended for no reason that is known here.
    pub(crate) async fn tend(&mut self) -> String {
        loop {
            let Ok(status) = self.active.process.wait(Duration::from_secs(3600)).await else { continue };
            let tail = self.active.tail();
            if tail.contains(" reached, aborting") {
                let point = self.armed.pop_front().unwrap_or_default();
                self.at_failpoints += 1;
                say(&format!("the operator ended at {point}"));
            } else if tail.contains("the Lease is lost") {
                self.leases_lost += 1;
                say("the operator lost its Lease and ended");
            } else {
                return format!("the operator ended with {status}: {tail}");
            }
            // Nothing is awaited between the end and the new start, so that an end is never judged twice.
            if let Err(error) = self.active.restart(&failpoints(self.armed.front(), &self.losing)).await {
                return error;
            }
        }
    }

    /// Kills it and starts it again.
    pub(crate) async fn kill(&mut self, same: bool, scene: &mut Scene) -> Result<(), String> {
        self.active.process.kill().await.map_err(|e| e.to_string())?;
        sleep(RESTART).await;
        if same {
            let failpoints = failpoints(self.armed.front(), &self.losing);
            return self.active.restart(&failpoints).await;
        }
        self.active = self.another(scene).await;
        Ok(())
    }

    /// Starts it again with these failpoints: it ends at the first one, in its next life at the next.
    pub(crate) async fn arm(&mut self, points: &[String]) -> Result<(), String> {
        let (losing, ends) = points.iter().cloned().partition(|p| p.contains(":lost"));
        self.losing = losing;
        self.armed = VecDeque::from(ends);
        self.active.process.kill().await.map_err(|e| e.to_string())?;
        let failpoints = failpoints(self.armed.front(), &self.losing);
        self.active.restart(&failpoints).await
    }

    /// Lets a second one wait, and freezes the first.
    pub(crate) async fn freeze(&mut self, scene: &mut Scene) -> Asleep {
        let second = self.another(scene).await;
        let operator = std::mem::replace(&mut self.active, second);
        let frozen = Frozen::operator(&operator.process);
        Asleep { frozen, operator }
    }

    /// Whether the one that is tended holds the Lease.
    pub(crate) async fn hold_the_lease(&self, scene: &Scene) -> Result<(), String> {
        let lease = scene.api::<Lease>().get("aa20b3a9.etcd-operator.cozystack.io").await;
        let holder = lease.map_err(|e| e.to_string())?.spec.and_then(|s| s.holder_identity);
        if holder.as_ref() == Some(&self.active.uid) { Ok(()) } else { Err(format!("{holder:?} holds it")) }
    }

    /// As [`Operators::hold_the_lease`], soon.
    pub(crate) async fn take_over(&self, scene: &Scene) -> Result<(), String> {
        let end = Instant::now() + TAKEOVER;
        loop {
            match self.hold_the_lease(scene).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => {
                    return Err(format!("the second operator does not take over: {error}"));
                }
                Err(_) => sleep(Duration::from_millis(300)).await,
            }
        }
    }

    /// Lets a second one wait, and asks the first to end.
    pub(crate) async fn hand_over(&mut self, scene: &mut Scene) -> Result<(), String> {
        let second = self.another(scene).await;
        sleep(RESTART).await;
        let first = std::mem::replace(&mut self.active, second);
        let status = first.process.stop().await.map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("asked to end, the operator ended with {status}")) }
    }

    /// Cuts it off from the API server, or ends that.
    pub(crate) fn cut(&self, off: bool) {
        if off { self.active.link.cut() } else { self.active.link.heal() }
    }

    /// Ends it for good.
    pub(crate) async fn end(&mut self) {
        // It may have ended by itself; then nothing is left to do.
        let _ = self.active.process.kill().await;
    }

    async fn another(&mut self, scene: &mut Scene) -> Operator {
        // Its failpoints go with a process.
        self.armed.clear();
        self.losing.clear();
        self.started = self.started % 200 + 1;
        start(scene, self.started + 1).await
    }
}

impl Asleep {
    /// Wakes it, and waits until it has noticed what it lost.
    ///
    /// # Errors
    /// It goes on, or ends for another reason.
    pub(crate) async fn wake(self) -> Result<(), String> {
        let Self { frozen, mut operator } = self;
        drop(frozen);
        let end = Instant::now() + NOTICES;
        let status = timeout_at(end, operator.process.wait(NOTICES)).await;
        let Ok(Ok(status)) = status else {
            return Err("an operator that slept through the end of its Lease goes on".to_owned());
        };
        let tail = operator.tail();
        if tail.contains("the Lease is lost") {
            return Ok(());
        }
        Err(format!("an operator that slept through the end of its Lease ended with {status}: {tail}"))
    }
}

impl Operator {
    async fn restart(&mut self, failpoints: &str) -> Result<(), String> {
        let env = [self.link.variable(), ("POD_UID", &*self.uid), ("ETCD_OPERATOR_FAILPOINTS", failpoints)];
        self.life = std::fs::metadata(self.process.log_path()).map_or(0, |m| m.len());
        self.process.restart_with(&env).await.map_err(|e| e.to_string())
    }

    /// The end of its log, as far as it is of the present life.
    fn tail(&self) -> String {
        let read = || {
            let mut file = File::open(self.process.log_path())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL).max(self.life)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }
}

async fn start(scene: &mut Scene, number: u8) -> Operator {
    let link = Link::open(&scene.testbed, scene.namespace.name(), number).await;
    let uid = format!("00000000-0000-4000-8000-{number:012x}");
    let process = scene.another(&[link.variable(), ("POD_UID", &uid)]);
    Operator { process, link, uid, life: 0 }
}

fn failpoints(next: Option<&String>, losing: &[String]) -> String {
    next.into_iter().chain(losing).cloned().collect::<Vec<_>>().join(",")
}
