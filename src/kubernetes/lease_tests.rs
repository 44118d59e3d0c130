//! The Lease loop against an API server in memory, on paused time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep, timeout};

use super::*;
use crate::fake_api::{FakeApi, Fault};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/operator/leases/l";
const SHORT: Duration = Duration::from_millis(1);

fn settings(identity: &str) -> LeaseSettings {
    LeaseSettings { namespace: "operator".into(), name: "l".into(), identity: identity.into() }
}

fn start(api: &FakeApi, identity: &str) -> LeaseLoop {
    LeaseLoop::start(api.client(), settings(identity))
}

fn lease_of(holder: &str, renewed: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l", "namespace": "operator"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": renewed}})
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_at_once_with_the_fields_of_client_go() {
    let api = FakeApi::default();
    let seat = start(&api, "a");
    let ownership = seat.acquired().await;
    assert!(ownership.valid_for(Duration::from_secs(14)));
    assert!(!ownership.valid_for(DURATION));
    let spec = api.get(PATH).unwrap()["spec"].clone();
    assert_eq!(spec["holderIdentity"], "a");
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert_eq!(spec["leaseTransitions"], 0);
    assert!(spec["acquireTime"].is_string() && spec["renewTime"].is_string());
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_every_three_seconds_and_stays_valid_for_an_api_call() {
    let api = FakeApi::default();
    let seat = start(&api, "a");
    let ownership = seat.acquired().await;
    api.take_log();
    for _ in 0..300 {
        sleep(Duration::from_millis(100)).await;
        assert!(ownership.valid_for(etcd_operator_core::time::timeouts::API_CALL));
    }
    let renewals = api.take_log();
    assert!((9..=11).contains(&renewals.len()), "{}", renewals.len());
    assert!(renewals.iter().all(|r| r.method == http::Method::PUT), "a renewal needs no read");
    assert!(renewals.iter().all(|r| r.body["metadata"]["resourceVersion"].is_string()));
}

// AP-06
#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_ends_the_ownership_before_anyone_else_can_take_the_lease() {
    let api = FakeApi::default();
    let first = start(&api, "a");
    let ownership = first.acquired().await;
    let second = start(&api, "b");
    sleep(Duration::from_secs(10)).await;

    api.faults(|seen| {
        let is_a = seen.body["spec"]["holderIdentity"] == "a" || seen.body.is_null();
        if seen.method == http::Method::PUT && is_a { Fault::Hang } else { Fault::None }
    });
    let hung = Instant::now();
    ownership.lost().await;
    assert!(hung.elapsed() < DURATION, "{:?}", hung.elapsed());
    assert!(!ownership.valid_for(Duration::ZERO));
    assert!(second.ownership().is_none());
    assert!(matches!(*first.standing().borrow(), Standing::Lost { .. }));

    let taken = timeout(Duration::from_secs(30), second.acquired()).await.unwrap();
    assert!(taken.valid_for(SHORT));
    assert_eq!(api.get(PATH).unwrap()["spec"]["leaseTransitions"], 1);
}

// AP-06
#[tokio::test(start_paused = true)]
async fn two_candidates_are_never_both_valid_whatever_the_api_server_does() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let random: Arc<Mutex<rand::rngs::StdRng>> =
        Arc::new(Mutex::new(<rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed)));
    let api = FakeApi::default();
    let dice = random.clone();
    api.faults(move |_| {
        use rand::Rng as _;
        let mut dice = dice.lock().unwrap();
        match dice.random_range(0..10) {
            0..4 => Fault::None,
            4 => Fault::Slow(Duration::from_millis(dice.random_range(0..6_000))),
            5 => Fault::LoseReply,
            6 => Fault::Hang,
            7 => Fault::Refuse(503),
            8 => Fault::ApplyThen(504),
            _ => Fault::Refuse(429),
        }
    });
    let seats = [start(&api, "a"), start(&api, "b"), start(&api, "c")];
    let mut owned = [0_u32; 3];
    for _ in 0..60_000 {
        sleep(Duration::from_millis(50)).await;
        let valid: Vec<usize> =
            (0..3).filter(|i| seats[*i].ownership().is_some_and(|o| o.valid_for(Duration::ZERO))).collect();
        assert!(valid.len() < 2, "{valid:?} own the shard at once");
        valid.iter().for_each(|i| owned[*i] += 1);
    }
    assert!(
        owned.iter().all(|o| *o > 100),
        "each must have had its turn, else this proves little: {owned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lease_is_noticed_at_the_next_renewal_and_never_taken_back_by_force() {
    let api = FakeApi::default();
    let seat = start(&api, "a");
    let ownership = seat.acquired().await;
    api.put(PATH, lease_of("thief", "2026-01-01T00:00:00.000000Z"));
    timeout(Duration::from_secs(5), ownership.lost()).await.unwrap();
    assert!(!ownership.valid_for(Duration::ZERO));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(api.get(PATH).unwrap()["spec"]["holderIdentity"], "thief");
    assert_eq!(*seat.standing().borrow(), Standing::Waiting { holder: Some("thief".into()) });
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_an_earlier_tenure_does_not_become_valid_again() {
    let api = FakeApi::default();
    let seat = start(&api, "a");
    let first = seat.acquired().await;
    api.put(PATH, lease_of("thief", "2026-01-01T00:00:00.000000Z"));
    first.lost().await;
    let second = timeout(Duration::from_secs(60), seat.acquired()).await.unwrap();
    assert!(second.valid_for(SHORT));
    assert!(!first.valid_for(SHORT));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_of_the_same_pod_resumes_at_once() {
    let api = FakeApi::default();
    let before = start(&api, "pod-uid");
    before.acquired().await;
    drop(before);
    let after = start(&api, "pod-uid");
    let began = Instant::now();
    after.acquired().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(api.get(PATH).unwrap()["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn another_holders_clock_is_never_trusted() {
    for renewed in ["1970-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"] {
        let api = FakeApi::default();
        api.put(PATH, lease_of("other", renewed));
        let seat = start(&api, "a");
        let began = Instant::now();
        seat.acquired().await;
        // Not at once for a renewal long past, and not never for one in the future.
        assert!(began.elapsed() >= DURATION, "{renewed}: {:?}", began.elapsed());
        assert!(began.elapsed() < DURATION + 2 * RETRY_EVERY, "{renewed}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_renews_keeps_its_lease() {
    let api = FakeApi::default();
    let seat = start(&api, "a");
    api.put(PATH, lease_of("other", "2026-01-01T00:00:00.000000Z"));
    for second in 0..60 {
        api.put(PATH, lease_of("other", &format!("2026-01-01T00:00:{second:02}.000000Z")));
        advance(Duration::from_secs(1)).await;
        assert!(seat.ownership().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_back_is_free_at_once() {
    let api = FakeApi::default();
    let first = start(&api, "a");
    let ownership = first.acquired().await;
    first.release().await.unwrap();
    assert!(!ownership.valid_for(Duration::ZERO));
    let spec = api.get(PATH).unwrap()["spec"].clone();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    let second = start(&api, "b");
    let began = Instant::now();
    second.acquired().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn release_gives_back_nothing_that_another_holds() {
    let api = FakeApi::default();
    let seat = start(&api, "a");
    seat.acquired().await;
    api.put(PATH, lease_of("thief", "2026-01-01T00:00:00.000000Z"));
    let _ = seat.release().await;
    assert_eq!(api.get(PATH).unwrap()["spec"]["holderIdentity"], "thief");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_forward_pauses_ownership_until_the_next_renewal() {
    let api = FakeApi::default();
    let jumped = Arc::new(AtomicBool::new(false));
    let clock = jumped.clone();
    // As after a suspend: the monotonic clock stood still, the wall clock did not.
    let wall = move || {
        let hour = if clock.load(Ordering::Relaxed) { 3_600 } else { 0 };
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + hour)
    };
    let seat = LeaseLoop::start_with(api.client(), settings("a"), Arc::new(wall));
    let ownership = seat.acquired().await;
    assert!(ownership.valid_for(Duration::from_secs(10)));
    jumped.store(true, Ordering::Relaxed);
    assert!(!ownership.valid_for(Duration::ZERO));
    sleep(RENEW_EVERY + Duration::from_secs(1)).await;
    assert!(ownership.valid_for(Duration::from_secs(10)), "the tenure itself went on");
    jumped.store(false, Ordering::Relaxed);
    assert!(ownership.valid_for(Duration::from_secs(10)), "a jump back changes nothing");
    sleep(DURATION).await;
    assert!(ownership.valid_for(Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_waited_out_without_a_storm() {
    let api = FakeApi::default();
    api.faults(|_| Fault::Refuse(429));
    let seat = start(&api, "a");
    sleep(Duration::from_secs(60)).await;
    assert!(seat.ownership().is_none());
    let requests = api.take_log().len();
    assert!(requests <= 31, "{requests} requests in a minute");
}

#[tokio::test]
async fn without_a_lease_ownership_is_always_valid() {
    assert!(Ownership::without_lease().valid_for(Duration::from_secs(3_600)));
}
