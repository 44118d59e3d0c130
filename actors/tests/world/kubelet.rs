//! Owns the life of Pods in the fake world: scheduling, container starts, crashes, termination, and
//! the garbage collector's delay.

use std::{net::IpAddr, sync::Arc, time::Duration};

use etcd_operator_core::{
    ids::Uid,
    view::{JoinInstruction, PodTrouble},
};
use etcd_operator_etcd::CLIENT_PORT;

use super::{objects::Object, shared::Shared};

/// How long a container that ended waits for its next start.
const CRASH_BACK_OFF: Duration = Duration::from_secs(2);

/// From the create of a Pod to the last start of its process.
pub(crate) async fn run(shared: Arc<Shared>, name: String, uid: Uid) {
    let schedule = shared.lock().knobs.schedule;
    tokio::time::sleep(schedule).await;
    {
        let now = shared.now();
        let state = &mut *shared.lock();
        let n = state.next();
        let ip = IpAddr::from([10, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
        if state.truth.pods.get(&name).is_none_or(|p| p.view.uid != uid) {
            return;
        }
        state.edit_pod(now, &name, |p| {
            p.view.ip = Some(ip);
            p.view.node = Some("node".into());
        });
    }
    shared.news.notify_one();
    start(shared, name, uid).await;
}

/// Starts the container until its process stays.
pub(crate) async fn start(shared: Arc<Shared>, name: String, uid: Uid) {
    loop {
        let boot = shared.lock().knobs.boot;
        tokio::time::sleep(boot).await;
        let pause = match try_start(&shared, &name, &uid) {
            Some(pause) => pause,
            None => return,
        };
        shared.news.notify_one();
        tokio::time::sleep(pause).await;
    }
}

/// One start. Returns the pause before the next; none when there is no need of one.
fn try_start(shared: &Shared, name: &str, uid: &Uid) -> Option<Duration> {
    let now = shared.now();
    let state = &mut *shared.lock();
    let pod = state.truth.pods.get(name).filter(|p| p.view.uid == *uid && !p.view.deleting)?.clone();
    if state.held.contains(name) {
        return Some(Duration::from_millis(200));
    }
    let ip = pod.view.ip?;
    let instruction: JoinInstruction = pod.view.instruction.clone()?;
    let Some(pvc) = state.truth.pvcs.get(name).cloned() else { return Some(CRASH_BACK_OFF) };
    let member = state.truth.members.get(&pod.member.uid).cloned()?;
    if pod.pvc_uid != pvc.view.uid || member.view.recorded.pvc_uid.as_ref() != Some(&pvc.view.uid) {
        state.violated(now, format!("{name} starts on another volume than the recorded"));
    }
    if matches!(instruction, JoinInstruction::New { .. })
        && state.etcd.instances.iter().any(|i| i.of == pod.member.cluster.uid)
        && !state.etcd.volumes.contains_key(&pvc.view.uid)
    {
        state.violated(now, format!("{name} forms a second cluster"));
    }
    let process = (uid.clone(), pod.member.name.clone(), pvc.view.uid.clone());
    let booted = state.etcd.boot(
        (ip, CLIENT_PORT).into(),
        process,
        &member.view.peer_url,
        &pod.member.cluster.uid,
        &instruction,
        now,
    );
    match booted {
        Ok(()) => {
            state.edit_pod(now, name, |p| p.view.trouble = None);
            state.settle(now);
            shared.news.notify_one();
            None
        }
        Err(words) => {
            state.edit_pod(now, name, |p| p.view.trouble = Some(PodTrouble::CrashLooping(words)));
            Some(CRASH_BACK_OFF)
        }
    }
}

/// The process of a member ends. It is started again unless it is held.
pub(crate) fn crash(shared: &Arc<Shared>, name: &str) {
    let now = shared.now();
    let restarted = {
        let state = &mut *shared.lock();
        let Some(pod) = state.truth.pods.get(name).cloned() else { return };
        state.etcd.processes.retain(|_, p| p.pod != pod.view.uid);
        state.settle(now);
        pod.view.uid
    };
    shared.news.notify_one();
    tokio::spawn(start(shared.clone(), name.to_owned(), restarted));
}

/// From the deletionTimestamp of a Pod to its end.
pub(crate) async fn terminate(shared: Arc<Shared>, name: String, uid: Uid) {
    let terminate = shared.lock().knobs.terminate;
    tokio::time::sleep(terminate).await;
    {
        let now = shared.now();
        let state = &mut *shared.lock();
        state.etcd.processes.retain(|_, p| p.pod != uid);
        if state.truth.pods.get(&name).is_some_and(|p| p.view.uid == uid) {
            state.put(now, Object::Pod(name, None));
        }
        state.settle(now);
    }
    shared.news.notify_one();
}

/// The garbage collector's and the kubelet's turn, a moment after a change by whomever.
pub(crate) async fn follow_up(shared: Arc<Shared>) {
    let collect = shared.lock().knobs.collect;
    tokio::time::sleep(collect).await;
    let ending: Vec<(String, Uid)> = {
        let now = shared.now();
        let state = &mut *shared.lock();
        state.settle(now);
        let deleting = state.truth.pods.iter().filter(|(_, p)| p.view.deleting);
        deleting.map(|(name, p)| (name.clone(), p.view.uid.clone())).collect()
    };
    shared.news.notify_one();
    for (name, uid) in ending {
        tokio::spawn(terminate(shared.clone(), name, uid));
    }
}
