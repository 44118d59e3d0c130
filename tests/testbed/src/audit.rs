//! Counting requests to the API server by its audit log. Kubernetes' own components are left out
//! there (`etc/audit-policy.yaml`). Only reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::{Context, Result};

/// The user name of [`crate::Testbed::operator_kubeconfig`].
const OPERATOR: &str = "operator-under-test";

/// The API server's audit log. It is written before a request is answered, so a client that has its
/// answer finds its request here.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A moment, as a length of the log in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who sent it.
    pub user: String,
    /// The `User-Agent` header, may be empty.
    pub user_agent: String,
    /// The address that it came from, without a port; empty if it is not known.
    pub source: String,
    /// get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// The plural name with its subresource, `pods/status`; the path for what is no resource.
    pub resource: String,
    /// Empty for what is in no namespace, and for requests across all.
    pub namespace: String,
    /// Empty for a list, a watch, and a create without a name.
    pub name: String,
    /// HTTP status of the answer, 0 if there was none.
    pub code: u16,
}

/// A selection of requests, in order of their answers.
#[derive(Debug, Clone, Default)]
pub struct Requests(Vec<Request>);

impl AuditLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        AuditLog { path }
    }

    /// This moment.
    ///
    /// # Errors
    /// When there is no log.
    pub fn mark(&self) -> Result<Mark> {
        let length = std::fs::metadata(&self.path).context("looking at the audit log")?.len();
        Ok(Mark(length))
    }

    /// Requests answered after `mark`. A watch counts when it begins.
    ///
    /// # Errors
    /// When the log cannot be read or has a line that is no event.
    pub fn since(&self, mark: Mark) -> Result<Requests> {
        let mut file = File::open(&self.path).context("opening the audit log")?;
        file.seek(SeekFrom::Start(mark.0)).context("reading the audit log")?;
        let mut text = String::new();
        file.read_to_string(&mut text).context("reading the audit log")?;
        parse(&text)
    }
}

impl Requests {
    /// Those of the user `operator-under-test`.
    #[must_use]
    pub fn of_operator(&self) -> Requests {
        self.of_user(OPERATOR)
    }

    /// Those of one user; an operator in a Pod is `system:serviceaccount:NAMESPACE:NAME`.
    #[must_use]
    pub fn of_user(&self, user: &str) -> Requests {
        self.filter(|r| r.user == user)
    }

    /// Those that came from this address.
    #[must_use]
    pub fn of_source(&self, address: &str) -> Requests {
        self.filter(|r| r.source == address)
    }

    /// Those whose user agent begins with this.
    #[must_use]
    pub fn of_agent(&self, prefix: &str) -> Requests {
        self.filter(|r| r.user_agent.starts_with(prefix))
    }

    /// Those for which `keep` is true.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&Request) -> bool) -> Requests {
        Requests(self.0.iter().filter(|r| keep(r)).cloned().collect())
    }

    /// How many.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.len()
    }

    /// How many that change something.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.0.iter().filter(|r| !["get", "list", "watch"].contains(&r.verb.as_str())).count()
    }

    /// How many of each verb and resource, as "patch pods/status".
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in &self.0 {
            *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
        }
        counts
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default, rename = "sourceIPs")]
    source_ips: Vec<String>,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

fn parse(text: &str) -> Result<Requests> {
    let mut requests = Vec::new();
    // The last line may still be being written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in complete.lines() {
        let event: Event = serde_json::from_str(line).context("reading an audit event")?;
        // A watch has two events, all others one: the stage RequestReceived is left out.
        if (event.verb == "watch") != (event.stage == "ResponseStarted") {
            continue;
        }
        let object = event.object_ref;
        let resource = match &object {
            Some(o) if o.subresource.is_empty() => o.resource.clone(),
            Some(o) => format!("{}/{}", o.resource, o.subresource),
            None => event.request_uri,
        };
        let (namespace, name) = object.map(|o| (o.namespace, o.name)).unwrap_or_default();
        requests.push(Request {
            user: event.user.username,
            user_agent: event.user_agent,
            source: event.source_ips.into_iter().next().unwrap_or_default(),
            verb: event.verb,
            resource,
            namespace,
            name,
            code: event.response_status.map_or(0, |s| s.code),
        });
    }
    Ok(Requests(requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(stage: &str, verb: &str, user: &str) -> String {
        let reference = r#"{"resource":"pods","subresource":"status","namespace":"n","name":"p"}"#;
        format!(
            r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"/x","user":{{"username":"{user}"}},"userAgent":"a/1","objectRef":{reference},"responseStatus":{{"code":200}}}}"#
        ) + "\n"
    }

    #[test]
    fn a_watch_counts_once_and_when_it_begins() {
        let text =
            event("ResponseStarted", "watch", OPERATOR) + &event("ResponseComplete", "watch", OPERATOR);
        assert_eq!(parse(&text).unwrap().total(), 1);
        assert_eq!(parse(&event("ResponseComplete", "watch", OPERATOR)).unwrap().total(), 0);
    }

    #[test]
    fn only_the_requests_of_the_operator_are_the_operators() {
        let text = event("ResponseComplete", "patch", OPERATOR) + &event("ResponseComplete", "get", "admin");
        let all = parse(&text).unwrap();
        assert_eq!((all.total(), all.writes()), (2, 1));
        assert_eq!(all.of_operator().counts(), BTreeMap::from([("patch pods/status".to_owned(), 1)]));
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_for_the_next_look() {
        let text = event("ResponseComplete", "get", OPERATOR) + r#"{"stage":"Resp"#;
        assert_eq!(parse(&text).unwrap().total(), 1);
    }
}
