//! Decides the cluster's DNS domain: what the flag says, else what resolv.conf shows, else
//! `cluster.local`. Pure.

/// What is assumed when nothing says otherwise.
pub(crate) const DEFAULT: &str = "cluster.local";

/// The domain, and where it comes from.
///
/// A Pod's resolv.conf has a search line such as `ns.svc.cluster.local svc.cluster.local
/// cluster.local`; the entry that begins with `svc.` names the domain.
pub(crate) fn choose(flag: Option<&str>, resolv_conf: Option<&str>) -> (String, &'static str) {
    let clean = |domain: &str| domain.trim_matches('.').to_owned();
    if let Some(flag) = flag.map(clean).filter(|f| !f.is_empty()) {
        return (flag, "--cluster-domain");
    }
    let searched = resolv_conf.and_then(|text| {
        // The last search line counts, as in the resolver.
        let line = text.lines().rev().find_map(|l| l.trim().strip_prefix("search"))?;
        line.split_whitespace()
            .find_map(|entry| entry.strip_prefix("svc."))
            .map(clean)
            .filter(|d| !d.is_empty())
    });
    match searched {
        Some(domain) => (domain, "resolv.conf"),
        None => (DEFAULT.to_owned(), "default"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // DN-03
    #[test]
    fn the_domain_is_read_from_the_search_line() {
        for (text, domain) in [
            (
                "search ns.svc.cluster.local svc.cluster.local cluster.local\nnameserver 1.1.1.1",
                "cluster.local",
            ),
            ("nameserver 1.1.1.1\nsearch ns.svc.k8s.corp svc.k8s.corp k8s.corp corp", "k8s.corp"),
            ("search a.b\nsearch ns.svc.x.y.z. svc.x.y.z. x.y.z.", "x.y.z"),
        ] {
            assert_eq!(choose(None, Some(text)), (domain.to_owned(), "resolv.conf"), "{text}");
        }
    }

    #[test]
    fn without_a_svc_entry_or_a_file_the_default_is_used() {
        for text in [None, Some(""), Some("search corp example.com"), Some("search svc.")] {
            assert_eq!(choose(None, text), (DEFAULT.to_owned(), "default"), "{text:?}");
        }
    }

    #[test]
    fn the_flag_wins() {
        let text = Some("search svc.cluster.local");
        assert_eq!(choose(Some("other.domain."), text), ("other.domain".to_owned(), "--cluster-domain"));
    }
}
