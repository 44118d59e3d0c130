//! Reads the cases in `testdata/cases` and the golden objects in `testdata/golden`. Included by the client-side
//! test and by the one on a real API server, so that both prove the same list.

use std::path::PathBuf;

use serde_json::{Value, json};

/// One thing that the API server must accept or refuse.
pub(crate) struct Case {
    /// Kind of the object.
    pub(crate) kind: &'static str,
    /// What must hold, as a sentence.
    pub(crate) case: String,
    /// metadata.name.
    pub(crate) name: String,
    /// The stored spec, when the case is an update.
    pub(crate) was: Option<Value>,
    /// The spec that is sent.
    pub(crate) spec: Value,
    /// Words that the refusal contains. `None` means accepted.
    pub(crate) refused: Option<String>,
    /// What the stored spec contains; null means that it must not be there.
    pub(crate) stored: Option<Value>,
}

impl Case {
    /// The whole object with this spec.
    pub(crate) fn object(&self, spec: &Value) -> Value {
        json!({
            "apiVersion": "etcd-operator.cozystack.io/v1alpha2",
            "kind": self.kind,
            "metadata": { "name": self.name },
            "spec": spec,
        })
    }

    /// `None` if the answer is the one that the case asks for, else what is wrong with it.
    pub(crate) fn check(&self, answer: &Result<Value, String>) -> Option<String> {
        match (answer, &self.refused) {
            (Ok(stored), None) => {
                let differs = missing(self.stored.as_ref().unwrap_or(&Value::Null), &stored["spec"], "spec")?;
                Some(format!("{} / {}: stored otherwise: {differs}", self.kind, self.case))
            }
            (Err(text), Some(words)) if text.contains(words) => None,
            (Err(text), Some(words)) => Some(format!(
                "{} / {}: refused, but without the words {words:?}: {text}",
                self.kind, self.case
            )),
            (Ok(_), Some(_)) => Some(format!("{} / {}: accepted, but must be refused", self.kind, self.case)),
            (Err(text), None) => Some(format!("{} / {}: must be accepted: {text}", self.kind, self.case)),
        }
    }
}

/// The first place where `wanted` is not found in `actual`.
fn missing(wanted: &Value, actual: &Value, path: &str) -> Option<String> {
    match (wanted, actual) {
        (Value::Null, _) if path == "spec" => None,
        (Value::Object(wanted), actual) => wanted.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match (value, actual.get(key)) {
                (Value::Null, None) => None,
                (Value::Null, Some(there)) => Some(format!("{path} is there: {there}")),
                (value, there) => missing(value, there.unwrap_or(&Value::Null), &path),
            }
        }),
        (wanted, actual) if wanted == actual => None,
        (wanted, actual) => Some(format!("{path} is {actual}, not {wanted}")),
    }
}

fn testdata() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    [root.join("testdata"), root.join("src/api/testdata")]
        .into_iter()
        .find(|path| path.is_dir())
        .expect("testdata is in the crate of the API")
}

fn read(path: PathBuf) -> Value {
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every case of every kind.
pub(crate) fn cases() -> Vec<Case> {
    let files = [
        ("EtcdCluster", "cluster.yaml"),
        ("EtcdMember", "member.yaml"),
        ("EtcdSnapshot", "snapshot.yaml"),
        ("EtcdDefrag", "defrag.yaml"),
    ];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut cases = Vec::new();
    for (kind, file) in files {
        let list = read(testdata().join("cases").join(file));
        for entry in list.as_array().expect("a file of cases is a list") {
            let entry = entry.as_object().expect("a case is a map");
            for key in entry.keys() {
                let known = ["case", "name", "was", "spec", "refused", "stored"];
                assert!(known.contains(&key.as_str()), "{file}: unknown key {key}");
            }
            cases.push(Case {
                kind,
                case: text(&entry["case"]).expect("a case has a sentence"),
                name: entry.get("name").and_then(text).unwrap_or_else(|| "db".to_owned()),
                was: entry.get("was").cloned(),
                spec: entry["spec"].clone(),
                refused: entry.get("refused").map(|words| text(words).expect("refused is text")),
                stored: entry.get("stored").cloned(),
            });
        }
    }
    cases
}

/// One object of each kind in which every field is set.
pub(crate) fn golden() -> Vec<Value> {
    ["etcdcluster.yaml", "etcdmember.yaml", "etcdsnapshot.yaml", "etcddefrag.yaml"]
        .into_iter()
        .map(|file| read(testdata().join("golden").join(file)))
        .collect()
}
