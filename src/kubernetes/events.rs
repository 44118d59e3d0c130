//! Owns Events, which tell people what was done and why. Does I/O: it writes Events.
//!
//! An Event is a courtesy. It never delays an actor and its failure never matters: the queue is
//! bounded, what does not fit is dropped and counted, and one task sends them slowly enough to never
//! compete with the operator's work. Nothing reads Events back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_operator_api::Reason;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// The name that Events are reported under.
const CONTROLLER: &str = "etcd-operator";
/// How many may wait: a large fleet's start tells a few things of each cluster.
const QUEUE: usize = 1_000;
/// The least time between two: at most 20 a second.
const PAUSE: Duration = Duration::from_millis(50);
/// The limit of one write.
const WRITE: Duration = Duration::from_secs(5);
/// Longest note that the API server takes, in bytes.
const NOTE: usize = 1_024;

/// Sends Events. Clones share one queue and one task, which ends with the last clone.
#[derive(Debug, Clone)]
pub struct Events {
    queue: mpsc::Sender<(Event, ObjectReference)>,
    dropped: Arc<AtomicU64>,
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Events {
    /// Starts the task that sends them. `instance` names this process: its Pod's name or its host's.
    pub fn start(client: Client, instance: String) -> Self {
        let reporter = Reporter { controller: CONTROLLER.to_owned(), instance: Some(instance) };
        // The recorder counts what repeats into one Event, for six minutes.
        let recorder = Recorder::new(client, reporter);
        let (queue, mut queued) = mpsc::channel::<(Event, ObjectReference)>(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let failed = dropped.clone();
        let task = tokio::spawn(async move {
            while let Some((event, object)) = queued.recv().await {
                let outcome = timeout(WRITE, recorder.publish(&event, &object)).await;
                if !matches!(outcome, Ok(Ok(()))) {
                    failed.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(reason = event.reason, ?outcome, "an Event could not be written");
                }
                sleep(PAUSE).await;
            }
        });
        Self { queue, dropped, _task: Arc::new(Task(task)) }
    }

    /// Tells of a step or a trouble of `object`. Returns at once, whatever the API server does.
    ///
    /// `note` is a sentence for a person, without secrets; one that is too long is cut.
    pub fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, reason: Reason, note: impl Into<String>) {
        self.tell_about(object, reason, None, note);
    }

    /// As [`Events::tell`], with a second object that the step is about. Events that repeat are
    /// counted as one; those about different objects are not the same, and stay apart.
    pub fn tell_about<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: Reason,
        about: Option<ObjectReference>,
        note: impl Into<String>,
    ) {
        self.send(object.object_ref(&()), reason, about, note.into());
    }

    /// As [`Events::tell`], for an object of which only the reference is at hand.
    pub fn tell_of(&self, object: ObjectReference, reason: Reason, note: impl Into<String>) {
        self.send(object, reason, None, note.into());
    }

    fn send(&self, object: ObjectReference, reason: Reason, about: Option<ObjectReference>, note: String) {
        let type_ = if reason.is_warning() { EventType::Warning } else { EventType::Normal };
        let event = Event {
            type_,
            reason: reason.as_str().to_owned(),
            note: Some(cut(note)),
            // What was being done when it happened; the API server wants a word.
            action: "Reconcile".to_owned(),
            secondary: about,
        };
        if self.queue.try_send((event, object)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were dropped because too many waited, or could not be written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn cut(mut note: String) -> String {
    if note.len() > NOTE {
        let end = (0..=NOTE - 3).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
        note.truncate(end);
        note.push_str("...");
    }
    note
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;
    use crate::fake_api::{FakeApi, Fault};

    fn pod(name: &str) -> Pod {
        let metadata =
            ObjectMeta { namespace: Some("ns".into()), name: Some(name.into()), ..Default::default() };
        Pod { metadata, ..Default::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_names_its_object_its_reason_and_how_grave_it_is() {
        let api = FakeApi::default();
        let events = Events::start(api.client(), "pod-a".into());
        events.tell(&pod("p"), Reason::VolumeMissing, "the claim is gone");
        sleep(Duration::from_secs(1)).await;
        let sent = api.take_log().remove(0);
        assert_eq!(sent.path, "/apis/events.k8s.io/v1/namespaces/ns/events");
        assert_eq!(sent.body["reason"], "VolumeMissing");
        assert_eq!(sent.body["type"], "Warning");
        assert_eq!(sent.body["note"], "the claim is gone");
        assert_eq!(sent.body["regarding"]["name"], "p");
        assert_eq!(sent.body["reportingController"], "etcd-operator");
    }

    #[tokio::test(start_paused = true)]
    async fn what_repeats_is_counted_in_one_event() {
        let api = FakeApi::default();
        let events = Events::start(api.client(), "pod-a".into());
        for _ in 0..5 {
            events.tell(&pod("p"), Reason::ScalingUp, "growing");
        }
        sleep(Duration::from_secs(5)).await;
        let created = api.take_log().iter().filter(|r| r.method == http::Method::POST).count();
        assert_eq!(created, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_hangs_costs_events_and_no_time() {
        let api = FakeApi::default();
        api.faults(|_| Fault::Hang);
        let events = Events::start(api.client(), "pod-a".into());
        let began = tokio::time::Instant::now();
        for i in 0..3 * QUEUE {
            events.tell(&pod(&format!("p{i}")), Reason::PodCreated, "made");
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(events.dropped() >= 2 * QUEUE as u64 - 1, "{}", events.dropped());
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        let cut = cut("ä".repeat(2_000));
        assert!(cut.len() <= NOTE && cut.ends_with("..."), "{}", cut.len());
        assert_eq!(super::cut("short".into()), "short");
    }
}
