//! Drift of Services, with what a real API server adds to them.

use etcd_operator_core::view::ServiceKind;
use serde_json::json;

use super::*;
use crate::{objects, patch};

fn cluster() -> etcd_operator_api::EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "etcd-operator.cozystack.io/v1alpha2", "kind": "EtcdCluster",
        "metadata": {"name": "c", "namespace": "ns", "uid": "cluster-uid"},
        "spec": {"version": "3.6.16"},
    }))
    .unwrap()
}

/// As the API server stores it: with defaults, addresses and a foreign label.
fn stored(wanted: &Service) -> Value {
    let mut live = json!(wanted);
    live["metadata"]["uid"] = json!("service-uid");
    live["metadata"]["labels"]["example.com/team"] = json!("a");
    live["metadata"]["annotations"] = json!({"example.com/seen": "yes"});
    if live["spec"]["clusterIP"].is_null() {
        live["spec"]["clusterIP"] = json!("10.0.0.7");
    }
    live["spec"]["clusterIPs"] = json!([live["spec"]["clusterIP"]]);
    live["spec"]["ipFamilies"] = json!(["IPv4"]);
    live["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    live["spec"]["sessionAffinity"] = json!("None");
    live["spec"]["internalTrafficPolicy"] = json!("Cluster");
    live
}

fn service(live: &Value) -> Service {
    serde_json::from_value(live.clone()).unwrap()
}

const KINDS: [ServiceKind; 2] = [ServiceKind::Headless, ServiceKind::Client];

#[test]
fn what_the_api_server_and_others_add_is_no_drift() {
    for kind in KINDS {
        let wanted = objects::service(&cluster(), kind, None).unwrap();
        let live = service(&stored(&wanted));
        assert_eq!(repair(&live, &wanted), None, "{kind:?}");
        assert_eq!(state(Some(&live), &wanted, "cluster-uid"), ServiceState::Right);
    }
}

#[test]
fn every_edit_of_a_field_of_ours_is_put_right_by_one_patch_and_none_follows() {
    let edits = [
        json!({"spec": {"selector": {"etcd-operator.cozystack.io/cluster": "other"}}}),
        json!({"spec": {"selector": {"extra": "key"}}}),
        json!({"spec": {"selector": null}}),
        json!({"spec": {"ports": [{"name": "client", "port": 1, "targetPort": 2379, "protocol": "TCP"}]}}),
        json!({"spec": {"ports": []}}),
        json!({"spec": {"type": "NodePort"}}),
        json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}),
        json!({"metadata": {"labels": {"etcd-operator.cozystack.io/cluster": "junk"}}}),
    ];
    for kind in KINDS {
        let wanted = objects::service(&cluster(), kind, None).unwrap();
        for edit in &edits {
            let mut live = stored(&wanted);
            patch::apply(&mut live, edit);
            let read = service(&live);
            assert_eq!(state(Some(&read), &wanted, "cluster-uid"), ServiceState::Drifted, "{edit}");
            patch::apply(&mut live, &repair(&read, &wanted).unwrap());
            let read = service(&live);
            assert_eq!(repair(&read, &wanted), None, "{edit}");
            assert_eq!(read.metadata.labels.unwrap()["example.com/team"], "a", "others' labels stay");
        }
    }
}

#[test]
fn publishing_unready_addresses_is_ours_on_both() {
    for kind in KINDS {
        let wanted = objects::service(&cluster(), kind, None).unwrap();
        let mut live = stored(&wanted);
        let published = live["spec"]["publishNotReadyAddresses"] == json!(true);
        live["spec"]["publishNotReadyAddresses"] = json!(!published);
        assert_eq!(state(Some(&service(&live)), &wanted, "cluster-uid"), ServiceState::Drifted);
        // The API server leaves false out.
        patch::apply(&mut live, &json!({"spec": {"publishNotReadyAddresses": null}}));
        let absent = state(Some(&service(&live)), &wanted, "cluster-uid");
        assert_eq!(absent == ServiceState::Right, kind == ServiceKind::Client);
    }
}

#[test]
fn a_service_of_somebody_else_is_never_ours_by_name_or_label() {
    let wanted = objects::service(&cluster(), ServiceKind::Client, None).unwrap();
    let mut live = stored(&wanted);
    live["metadata"]["ownerReferences"][0]["uid"] = json!("another cluster of this name");
    assert_eq!(state(Some(&service(&live)), &wanted, "cluster-uid"), ServiceState::Foreign);
    live["metadata"]["ownerReferences"] = Value::Null;
    assert_eq!(state(Some(&service(&live)), &wanted, "cluster-uid"), ServiceState::Foreign);
}

#[test]
fn an_immutable_address_is_never_patched() {
    let wanted = objects::service(&cluster(), ServiceKind::Headless, None).unwrap();
    let mut live = stored(&wanted);
    live["spec"]["clusterIP"] = json!("10.0.0.9");
    assert_eq!(state(Some(&service(&live)), &wanted, "cluster-uid"), ServiceState::Foreign);
}

// VC-08
#[test]
fn what_the_spec_has_no_more_goes_from_a_service_by_one_patch_and_what_others_set_stays() {
    let more = |labels: Value| {
        serde_json::from_value(json!({"labels": labels, "annotations": {"note": "n"}})).unwrap()
    };
    let wanted = |extra| objects::service(&cluster(), ServiceKind::Client, extra).unwrap();
    let (before, after) = (more(json!({"team": "a", "tier": "1"})), more(json!({"team": "a"})));
    let mut live = json!(wanted(Some(&before)));
    live["metadata"]["labels"]["example.com/team"] = json!("kept");
    for now in [wanted(Some(&after)), wanted(None)] {
        assert_eq!(state(Some(&service(&live)), &now, "cluster-uid"), ServiceState::Drifted);
        let repair = repair(&service(&live), &now).unwrap();
        assert!(objects::extra::follows_spec(&repair), "nobody has edited it: {repair}");
        patch::apply(&mut live, &repair);
        assert_eq!(state(Some(&service(&live)), &now, "cluster-uid"), ServiceState::Right);
        let mut expected = json!(now);
        expected["metadata"]["labels"]["example.com/team"] = json!("kept");
        if expected["metadata"]["annotations"].is_null() {
            expected["metadata"]["annotations"] = json!({});
        }
        assert_eq!(live["metadata"], expected["metadata"]);
    }
}

// An object of an earlier build, or of the Go operator.
#[test]
fn a_service_that_was_made_without_a_note_gets_one_and_loses_nothing() {
    let extra = serde_json::from_value(json!({"labels": {"team": "a"}})).unwrap();
    let wanted = objects::service(&cluster(), ServiceKind::Client, Some(&extra)).unwrap();
    let mut live = stored(&wanted);
    let repair = repair(&service(&live), &wanted).unwrap();
    let note = json!({"labels": ["team"], "annotations": []}).to_string();
    let key = etcd_operator_api::labels::ADDITIONAL_METADATA;
    assert_eq!(repair, json!({"metadata": {"annotations": {key: note}}}));
    patch::apply(&mut live, &repair);
    assert_eq!(state(Some(&service(&live)), &wanted, "cluster-uid"), ServiceState::Right);
}
