//! What each text and code means, without a server. The same table is provoked on real servers in
//! the root package's `tests/etcd_servers.rs`.

use super::*;

/// Every refusal of a membership call or read, with each code that a version uses for it.
const REFUSALS: &[(&[Code], &str, Refusal)] = &[
    (&[Code::Unavailable], "etcdserver: unhealthy cluster", Refusal::UnhealthyCluster),
    (
        &[Code::FailedPrecondition],
        "etcdserver: re-configuration failed due to not enough started members",
        Refusal::NotEnoughStarted,
    ),
    (
        &[Code::FailedPrecondition],
        "etcdserver: can only promote a learner member which is in sync with leader",
        Refusal::LearnerNotReady,
    ),
    (&[Code::FailedPrecondition], "etcdserver: can only promote a learner member", Refusal::NotLearner),
    (
        &[Code::FailedPrecondition],
        "etcdserver: too many learner members in cluster",
        Refusal::TooManyLearners,
    ),
    (&[Code::FailedPrecondition], "etcdserver: Peer URLs already exists", Refusal::PeerUrlExists),
    (&[Code::FailedPrecondition], "etcdserver: member ID already exist", Refusal::MemberIdExists),
    (&[Code::NotFound], "etcdserver: member not found", Refusal::MemberNotFound),
    (
        &[Code::Unavailable, Code::FailedPrecondition],
        "etcdserver: rpc not supported for learner",
        Refusal::LearnerAsked,
    ),
    (&[Code::FailedPrecondition], "etcdserver: bad leader transferee", Refusal::BadLeaderTransferee),
    (&[Code::FailedPrecondition], "etcdserver: not leader", Refusal::NotLeader),
    (&[Code::ResourceExhausted], "etcdserver: mvcc: database space exceeded", Refusal::NoSpace),
    (&[Code::DataLoss], "etcdserver: corrupt cluster", Refusal::Corrupt),
];

// CL-04
#[test]
fn every_known_refusal_is_one_value_whatever_code_its_version_uses() {
    for (codes, text, refusal) in REFUSALS {
        for code in *codes {
            let got = classify_status(&Status::new(*code, *text));
            assert_eq!(got, EtcdFailure::Refused(refusal.clone()), "{code:?} {text}");
        }
    }
}

#[test]
fn what_may_be_done_yet_is_never_a_refusal_though_its_code_is_that_of_one() {
    for text in [
        "etcdserver: request timed out",
        "etcdserver: request timed out, possibly due to previous leader failure",
        "etcdserver: request timed out, possibly due to connection lost",
        "etcdserver: request timed out, waiting for the applied index took too long",
        "etcdserver: request timed out, leader transfer took too long",
        "etcdserver: leader changed",
        "etcdserver: no leader",
        "etcdserver: server stopped",
        "etcdserver: request cancelled",
    ] {
        let got = classify_status(&Status::unavailable(text));
        assert!(matches!(got, EtcdFailure::Ambiguous(_)), "{text}: {got:?}");
    }
}

// AU-06
#[test]
fn a_refused_credential_is_no_ill_health_and_no_doubt() {
    for (code, text) in [
        (Code::Unauthenticated, "etcdserver: invalid auth token"),
        (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
        (Code::InvalidArgument, "etcdserver: user name is empty"),
        (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
        (Code::PermissionDenied, "etcdserver: permission denied"),
    ] {
        let got = classify_status(&Status::new(code, text));
        assert!(matches!(got, EtcdFailure::Auth(_)), "{text}: {got:?}");
    }
}

#[test]
fn an_unknown_text_is_doubt_whatever_its_code() {
    for code in (1..=16).map(Code::from_i32).filter(|c| *c != Code::Unimplemented) {
        let got = classify_status(&Status::new(code, "etcdserver: something of 2031"));
        assert!(matches!(got, EtcdFailure::Ambiguous(_)), "{code:?}: {got:?}");
    }
}

#[test]
fn a_connection_that_was_never_made_is_unreachable_and_silent() {
    let refused = || -> Box<dyn Error + Send + Sync> {
        Box::new(ConnectError(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused))))
    };
    let status = Status::from_error(refused());
    assert!(matches!(classify_status(&status), EtcdFailure::Unreachable(_)));
    assert!(is_silence(&status));
}

#[test]
fn tls_trouble_is_found_however_deep_it_lies_and_is_never_silence() {
    let name = rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForName);
    let status =
        Status::from_error(Box::new(ConnectError(Box::new(io::Error::other(io::Error::other(name))))));
    assert!(matches!(classify_status(&status), EtcdFailure::Tls(_)), "{status:?}");
    assert!(!is_silence(&status));
}

#[test]
fn a_broken_connection_under_a_request_is_doubt_even_if_tls_was_what_broke() {
    let broken = [
        io::Error::from(io::ErrorKind::ConnectionReset),
        io::Error::other(rustls::Error::DecryptError),
        io::Error::other(rustls::Error::AlertReceived(rustls::AlertDescription::InternalError)),
    ];
    for error in broken {
        let status = Status::from_error(Box::new(error));
        assert!(matches!(classify_status(&status), EtcdFailure::Ambiguous(_)), "{status:?}");
        assert!(!is_silence(&status), "{status:?}");
    }
    let refused = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
    let status = Status::from_error(Box::new(io::Error::other(refused)));
    assert!(matches!(classify_status(&status), EtcdFailure::Tls(_)), "the handshake was refused: {status:?}");
}
