//! Owns the command line: our flags, and those that the Go operator of the same API group takes, in
//! Go's forms too (`-flag`, `--flag=false`). Does no I/O.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Parser, builder::BoolishValueParser};

/// Runs etcd clusters on Kubernetes through etcd's own membership API.
#[derive(Debug, Clone, Parser)]
#[command(name = "etcd-operator", version)]
pub(crate) struct Args {
    /// Where to serve /metrics: host:port, or :port for every address; 0 serves none.
    #[arg(long, default_value = ":8080")]
    pub(crate) metrics_bind_address: String,

    /// Where to serve /healthz and /readyz; 0 serves none.
    #[arg(long, default_value = ":8081")]
    pub(crate) health_probe_bind_address: String,

    /// Hold a Lease, so that two operators never act at once. Turn it off only where nothing else can run.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) leader_elect: bool,

    /// The namespace of the Lease. Default: the operator's own, else that of the kubeconfig's context.
    #[arg(long, env = "POD_NAMESPACE")]
    pub(crate) leader_elect_namespace: Option<String>,

    /// The cluster's DNS domain. Default: from /etc/resolv.conf, else cluster.local.
    #[arg(long)]
    pub(crate) cluster_domain: Option<String>,

    /// The operator's own image, for the Jobs that snapshots will need.
    #[arg(long, env = "OPERATOR_IMAGE")]
    pub(crate) operator_image: Option<String>,

    /// Where etcd images come from, without a tag.
    #[arg(long, env = "ETCD_IMAGE_REPOSITORY", default_value = "quay.io/coreos/etcd")]
    pub(crate) etcd_image_repository: String,

    /// So many clusters may be replacing a lost member at the same time; 0 replaces none.
    #[arg(long, default_value = "5")]
    pub(crate) max_concurrent_replacements: usize,

    /// Replace a member whose node seems to have been gone for so long, such as 30m or 2h (s, m or h; 1m at least): its
    /// Pod cannot be placed because its volume is on no other node, or does not end. A node that is only down looks the
    /// same, and comes back in vain when its member was replaced meanwhile, so the default is 0: a person decides.
    #[arg(long, env = "ETCD_OPERATOR_REPLACE_LOST_NODE_AFTER", default_value = "0", value_parser = duration)]
    pub(crate) replace_lost_node_after: Duration,

    /// Watch only these namespaces, separated by commas. Default: all.
    #[arg(long, env = "WATCH_NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespace: Vec<String>,

    /// The kubeconfig to use. Default: KUBECONFIG, ~/.kube/config, else the Pod's service account.
    #[arg(long)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// What to log, as `tracing` filters: a level, or target=level pairs.
    #[arg(long, env = "ETCD_OPERATOR_LOG", default_value = "info")]
    pub(crate) log: String,

    /// Log for people instead of machines.
    #[arg(long, env = "ETCD_OPERATOR_LOG_TEXT", default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub(crate) log_text: bool,
}

/// Flags of the Go operator that mean nothing here. They are accepted, so that its chart's
/// arguments start this binary, and named in a warning.
const MEANINGLESS: [&str; 8] = [
    "metrics-secure",
    "metrics-cert-path",
    "metrics-cert-name",
    "metrics-cert-key",
    "webhook-cert-path",
    "webhook-cert-name",
    "webhook-cert-key",
    "enable-http2",
];

/// The arguments in clap's form, and the flags that were left out because they mean nothing here.
///
/// Go takes one dash or two, and `--flag value` for everything but booleans.
pub(crate) fn from_go(args: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let (mut kept, mut ignored) = (Vec::new(), Vec::new());
    let mut args = args.into_iter();
    kept.extend(args.next());
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let Some(text) = arg.to_str().filter(|t| t.starts_with('-') && t.len() > 2) else {
            kept.push(arg);
            continue;
        };
        let bare = text.trim_start_matches('-');
        let name = bare.split('=').next().unwrap_or(bare);
        if name.starts_with("zap-") || MEANINGLESS.contains(&name) {
            ignored.push(name.to_owned());
            let takes_next = !bare.contains('=')
                && args.peek().and_then(|next| next.to_str()).is_some_and(|next| !next.starts_with('-'));
            if takes_next {
                args.next();
            }
            continue;
        }
        kept.push(OsString::from(format!("--{bare}")));
    }
    (kept, ignored)
}

/// Members are restarted within half a minute; what is shorter would take that for a lost node.
const SHORTEST: Duration = Duration::from_secs(60);

/// A whole number of seconds, minutes or hours; 0 is none at all.
///
/// # Errors
/// The text, if it is no such time or shorter than a restart may take.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3_600),
        _ => (text, 1),
    };
    let number = number
        .parse::<u32>()
        .map_err(|_| format!("{text:?} is no time: expected 0, or such as 90s, 30m or 2h"))?;
    let duration = Duration::from_secs(u64::from(number) * unit);
    if duration.is_zero() || duration >= SHORTEST {
        Ok(duration)
    } else {
        Err(format!("{text:?} is shorter than a restart may take: expected 0, or 1m at least"))
    }
}

/// Where to listen: Go's `:port` means every address, of both families where there are two.
///
/// # Errors
/// The text, if it is no address.
pub(crate) fn bind_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "0" || text.is_empty() {
        return Ok(None);
    }
    let full = text.strip_prefix(':').map_or_else(|| text.to_owned(), |port| format!("[::]:{port}"));
    full.parse()
        .map(Some)
        .map_err(|_| format!("{text:?} is not an address to listen on: expected host:port, :port or 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> (Args, Vec<String>) {
        let all = std::iter::once("etcd-operator").chain(args.iter().copied()).map(OsString::from);
        let (kept, ignored) = from_go(all);
        (Args::try_parse_from(kept).unwrap(), ignored)
    }

    // What the Go operator's chart renders by default.
    #[test]
    fn the_arguments_of_the_go_chart_start_this_binary() {
        let (args, ignored) = parse(&[
            "--leader-elect",
            "--health-probe-bind-address=:8081",
            "--metrics-bind-address=127.0.0.1:8080",
            "--etcd-image-repository=quay.io/coreos/etcd",
            "--zap-log-level=info",
            "--zap-devel=false",
        ]);
        assert!(args.leader_elect);
        assert_eq!(args.metrics_bind_address, "127.0.0.1:8080");
        assert_eq!(ignored, ["zap-log-level", "zap-devel"]);
    }

    #[test]
    fn one_dash_and_an_explicit_false_are_understood() {
        let (args, ignored) =
            parse(&["-leader-elect=false", "-zap-encoder", "json", "-cluster-domain", "x.y"]);
        assert!(!args.leader_elect);
        assert_eq!(args.cluster_domain.as_deref(), Some("x.y"));
        assert_eq!(ignored, ["zap-encoder"]);
    }

    #[test]
    fn the_lease_is_on_unless_turned_off() {
        assert!(parse(&[]).0.leader_elect);
    }

    #[test]
    fn a_flag_that_nobody_knows_is_refused() {
        let (kept, _) = from_go(["etcd-operator", "--leader-elct"].map(OsString::from));
        assert!(Args::try_parse_from(kept).is_err());
    }

    #[test]
    fn a_lost_node_is_waited_for_unless_a_time_is_given_that_a_restart_does_not_take() {
        let after = |args: &[&str]| parse(args).0.replace_lost_node_after.as_secs();
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&["--replace-lost-node-after=30m"]), 1_800);
        assert_eq!(after(&["-replace-lost-node-after", "2h"]), 7_200);
        assert_eq!((duration("90"), duration("0h")), (Ok(Duration::from_secs(90)), Ok(Duration::ZERO)));
        for bad in ["", "m", "-1m", "1.5h", "1d", "59s", "1", "99999999999h", "5ä"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    // DN-06
    #[test]
    fn a_bare_port_listens_on_both_families() {
        assert_eq!(bind_address(":8080"), Ok(Some("[::]:8080".parse().unwrap())));
        assert_eq!(bind_address("0"), Ok(None));
        assert_eq!(bind_address("10.0.0.1:1"), Ok(Some("10.0.0.1:1".parse().unwrap())));
        assert!(bind_address("8080").is_err());
    }
}
