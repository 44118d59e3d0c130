//! An API server in memory, for tests: objects by path, resourceVersions, preconditions,
//! finalizers, merge patches; and faults on demand. It validates nothing.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use crate::patch;

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// It is carried out and answered.
    None,
    /// It is carried out, and answered after this time.
    Slow(Duration),
    /// It is carried out, and never answered.
    LoseReply,
    /// It is never carried out and never answered.
    Hang,
    /// It is not carried out and is answered with this code.
    Refuse(u16),
    /// It is carried out and answered with this code.
    ApplyThen(u16),
}

type Faults = Box<dyn FnMut(&Seen) -> Fault + Send>;

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Value>,
    version: u64,
    log: Vec<Seen>,
    faults: Option<Faults>,
}

/// The API server. Clones share its objects.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<Inner>>);

impl FakeApi {
    pub(crate) fn client(&self) -> kube::Client {
        let this = self.clone();
        let service = tower::service_fn(move |request| this.clone().serve(request));
        kube::Client::new(service, "default")
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<String, Value>) -> T) -> T {
        f(&mut self.inner().objects)
    }

    /// Puts an object there as another writer would, with a new resourceVersion.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut inner = self.inner();
        inner.version += 1;
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        inner.objects.insert(path.to_owned(), object);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.inner().objects.get(path).cloned()
    }

    pub(crate) fn faults(&self, faults: impl FnMut(&Seen) -> Fault + Send + 'static) {
        self.inner().faults = Some(Box::new(faults));
    }

    /// All requests since the last call.
    pub(crate) fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.inner().log)
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.unwrap();
        let seen = Seen {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        };
        let fault = {
            let mut inner = self.inner();
            inner.log.push(seen.clone());
            let fault = inner.faults.as_mut().map_or(Fault::None, |f| f(&seen));
            // A watch on which nothing ever happens.
            if seen.query.contains("watch=true") { Fault::Hang } else { fault }
        };
        let carry_out = || self.inner().carry_out(&seen);
        let answer = match fault {
            Fault::None => carry_out(),
            Fault::Slow(time) => {
                let answer = carry_out();
                tokio::time::sleep(time).await;
                answer
            }
            Fault::LoseReply => {
                carry_out();
                std::future::pending().await
            }
            Fault::Hang => std::future::pending().await,
            Fault::Refuse(code) => failure(code, "", "refused by the test"),
            Fault::ApplyThen(code) => {
                carry_out();
                failure(code, "", "carried out, and the test says otherwise")
            }
        };
        let (code, body) = answer;
        let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Ok(response)
    }
}

fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message});
    (code, status)
}

impl Inner {
    fn carry_out(&mut self, seen: &Seen) -> (u16, Value) {
        let (path, is_status) = match seen.path.strip_suffix("/status") {
            Some(path) => (path.to_owned(), true),
            None => (seen.path.clone(), false),
        };
        if seen.method == Method::POST {
            return self.create(&path, seen.body.clone());
        }
        let Some(current) = self.objects.get(&path).cloned() else {
            // A collection is what has no object of its own; its last segment is a plural.
            if seen.method == Method::GET && path.split('/').next_back().is_some_and(|s| s.ends_with('s')) {
                return self.list(&path);
            }
            return failure(404, "NotFound", &path);
        };
        match seen.method {
            Method::GET => (200, current),
            Method::DELETE => self.delete(&path, current, &seen.body),
            _ => {
                let mut next = current.clone();
                if seen.method == Method::PUT {
                    next = seen.body.clone();
                } else if is_status {
                    patch::apply(&mut next["status"], &seen.body["status"]);
                } else {
                    patch::apply(&mut next, &seen.body);
                }
                let asked = &seen.body["metadata"]["resourceVersion"];
                if !asked.is_null() && *asked != current["metadata"]["resourceVersion"] {
                    return failure(409, "Conflict", "resourceVersion");
                }
                self.store(&path, next)
            }
        }
    }

    fn create(&mut self, path: &str, mut object: Value) -> (u16, Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("{path}/{name}");
        if self.objects.contains_key(&path) {
            return failure(409, "AlreadyExists", &path);
        }
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version + 1));
        self.store(&path, object)
    }

    fn list(&self, path: &str) -> (u16, Value) {
        let prefix = format!("{path}/");
        let items: Vec<_> =
            self.objects.iter().filter(|(k, _)| k.starts_with(&prefix)).map(|(_, v)| v).collect();
        let list = json!({"kind": "List", "apiVersion": "v1", "items": items,
            "metadata": {"resourceVersion": self.version.to_string()}});
        (200, list)
    }

    fn delete(&mut self, path: &str, mut object: Value, options: &Value) -> (u16, Value) {
        for field in ["uid", "resourceVersion"] {
            let asked = &options["preconditions"][field];
            if !asked.is_null() && *asked != object["metadata"][field] {
                return failure(409, "Conflict", field);
            }
        }
        if object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        let (_, object) = self.store(path, object);
        if object["metadata"]["deletionTimestamp"].is_null() {
            self.objects.remove(path);
        }
        (200, object)
    }

    fn store(&mut self, path: &str, mut object: Value) -> (u16, Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let metadata = &object["metadata"];
        let gone = !metadata["deletionTimestamp"].is_null()
            && metadata["finalizers"].as_array().is_none_or(|f| f.is_empty());
        if gone {
            self.objects.remove(path);
        } else {
            self.objects.insert(path.to_owned(), object.clone());
        }
        (200, object)
    }
}
