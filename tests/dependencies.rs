//! What may depend on what. Reads `cargo metadata` and `deny.toml`; no network, no other tool.
//!
//! The tables here are the arrows of `ARCHITECTURE.md`. A new arrow is a decision: change both.

#![allow(clippy::expect_used, clippy::panic, reason = "a helper of a test fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Our crates, and which of our crates each may use. What is left out may not be used.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("failpoints", &[]),
    ("api", &["core"]),
    ("etcd", &["core", "failpoints"]),
    ("kubernetes", &["core", "api", "failpoints"]),
    ("actors", &["core", "api", "etcd", "kubernetes", "failpoints"]),
    ("testbed", &[]),
    ("demo", &["api"]),
    // The root package: binaries, integration tests and benches.
    ("", &["core", "api", "etcd", "kubernetes", "actors", "failpoints"]),
];

/// Crates that only one layer may use, so that there is one place to look when they change. Tests may use
/// them to check that layer's words against the real thing.
const ONLY: &[(&str, &[&str], &str)] = &[
    ("ractor", &["actors"], "who restarts whom is decided in one crate"),
    ("etcd-client", &["etcd"], "its pitfalls are known in one crate"),
    ("tonic", &["etcd"], "etcd's errors are classified where they arrive"),
    ("kube", &["api", "kubernetes", "actors", "testbed", "demo", ""], "core and etcd know no Kubernetes"),
];

/// Everything that core's normal build contains: an error derive and what that needs to compile.
const CORE: &[&str] = &["thiserror", "thiserror-impl", "proc-macro2", "quote", "syn", "unicode-ident"];

/// Crates that others bring in but that ours must not name.
const NEVER_OURS: &[(&str, &str)] = &[
    ("anyhow", "an error is a value that callers match on"),
    ("jiff", "the registry's newest does not fit k8s-openapi; use k8s_openapi::jiff"),
    ("lazy_static", "std::sync::LazyLock does it"),
];

struct Metadata {
    /// Package ID to its name.
    names: BTreeMap<String, String>,
    /// Our packages: short name ("" for the root) to package ID.
    ours: BTreeMap<String, String>,
    /// Package ID to what it depends on: the ID, and the kinds ("normal", "dev", "build").
    edges: BTreeMap<String, Vec<(String, BTreeSet<String>)>>,
}

impl Metadata {
    fn read() -> Self {
        let host = stdout(Command::new("rustc").arg("-vV"));
        let host = host.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
        let text = stdout(
            Command::new(env!("CARGO"))
                .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", host])
                .current_dir(env!("CARGO_MANIFEST_DIR")),
        );
        let json: Value = serde_json::from_str(&text).expect("cargo metadata is JSON");
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut names = BTreeMap::new();
        let mut ours = BTreeMap::new();
        for package in list(&json["packages"]) {
            let (id, name) = (word(&package["id"]), word(&package["name"]));
            if package["source"].is_null() {
                let short = name.strip_prefix("etcd-operator").expect("our packages share a prefix");
                ours.insert(short.trim_start_matches('-').to_owned(), id.clone());
            }
            names.insert(id, name);
        }
        let mut edges = BTreeMap::new();
        for node in list(&json["resolve"]["nodes"]) {
            let deps = list(&node["deps"]).into_iter().map(|dep| {
                let kinds = list(&dep["dep_kinds"]);
                let kind = |k: &Value| k["kind"].as_str().unwrap_or("normal").to_owned();
                (word(&dep["pkg"]), kinds.iter().map(kind).collect())
            });
            edges.insert(word(&node["id"]), deps.collect());
        }
        Metadata { names, ours, edges }
    }

    /// Names of what one of our packages names itself, with or without what only its tests use.
    fn direct(&self, short: &str, with_tests: bool) -> BTreeSet<&str> {
        let edges = self.edges[&self.ours[short]].iter();
        let counts = |kinds: &BTreeSet<String>| with_tests || kinds.iter().any(|kind| kind != "dev");
        edges.filter(|(_, kinds)| counts(kinds)).map(|(dep, _)| self.names[dep].as_str()).collect()
    }

    /// Names of everything in a package's build, without tests.
    fn tree(&self, short: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![self.ours[short].as_str()];
        while let Some(id) = open.pop() {
            for (dep, kinds) in &self.edges[id] {
                if (kinds.contains("normal") || kinds.contains("build")) && seen.insert(dep.as_str()) {
                    open.push(dep);
                }
            }
        }
        seen.into_iter().map(|id| self.names[id].as_str()).collect()
    }
}

fn stdout(command: &mut Command) -> String {
    let out = command.output().expect("the command can be run");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("the output is text")
}

/// The bans of `deny.toml`: crate and reason. One entry a line, so no parser is needed.
fn bans() -> Vec<(String, String)> {
    let text = include_str!("../deny.toml");
    let quoted = |line: &str, key: &str| {
        let rest = line.split_once(&format!("{key} = \""))?.1;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let section = text.split_once("\ndeny = [").expect("deny.toml has a list of bans").1;
    let section = section.split_once("\n]").expect("the list of bans ends").0;
    section
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let name = quoted(line, "crate").unwrap_or_else(|| panic!("no crate in {line:?}"));
            let reason = quoted(line, "reason").unwrap_or_else(|| panic!("no reason in {line:?}"));
            (name, reason)
        })
        .collect()
}

#[test]
fn core_is_built_from_nothing_that_does_input_or_output() {
    let metadata = Metadata::read();
    let allowed: BTreeSet<&str> = CORE.iter().copied().collect();
    let surplus: Vec<_> = metadata.tree("core").into_iter().filter(|name| !allowed.contains(name)).collect();
    assert!(surplus.is_empty(), "core's build contains {surplus:?}, which is not on its list");
}

#[test]
fn every_layer_uses_only_the_layers_below_it() {
    let metadata = Metadata::read();
    let mut wrong = Vec::new();
    for short in metadata.ours.keys() {
        let Some((_, allowed)) = ARROWS.iter().find(|(layer, _)| layer == short) else {
            wrong.push(format!("etcd-operator-{short} has no line in the table of arrows"));
            continue;
        };
        for dep in metadata.direct(short, true) {
            let Some(dep) = dep.strip_prefix("etcd-operator-") else { continue };
            // Tests, benches and the demo may stand on a testbed; nothing that users run may.
            let test_only = dep == "testbed" && !metadata.tree(short).contains("etcd-operator-testbed");
            if !allowed.contains(&dep) && !test_only && dep != short {
                wrong.push(format!("{short:?} uses {dep}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_crate_that_belongs_to_one_layer_is_used_by_no_other() {
    let metadata = Metadata::read();
    let mut wrong = Vec::new();
    for (name, layers, why) in ONLY {
        for short in metadata.ours.keys() {
            if metadata.direct(short, false).contains(name) && !layers.contains(&short.as_str()) {
                wrong.push(format!("{short:?} uses {name}: {why}"));
            }
        }
    }
    for (name, why) in NEVER_OURS {
        for short in metadata.ours.keys().filter(|short| metadata.direct(short, true).contains(name)) {
            wrong.push(format!("{short:?} uses {name}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_banned_crate_is_anywhere_in_the_build() {
    let bans = bans();
    assert!(bans.len() >= 5, "only {} bans were read from deny.toml", bans.len());
    let metadata = Metadata::read();
    let present: BTreeSet<&str> = metadata.names.values().map(String::as_str).collect();
    let wrong: Vec<_> = bans.iter().filter(|(name, _)| present.contains(name.as_str())).collect();
    assert!(wrong.is_empty(), "banned crates in the build: {wrong:?}");
}

#[test]
fn every_ban_says_why() {
    for (name, reason) in bans() {
        assert!(reason.len() >= 15, "{name}: {reason:?}");
    }
}

// MQ-12
#[test]
fn no_layer_can_send_a_member_update() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let clippy = std::fs::read_to_string(root.join("clippy.toml")).expect("clippy.toml is there");
    assert!(clippy.contains("etcd_client::Client::member_update"), "clippy allows MemberUpdate");
    let mut files = vec![root.join("src"), root.join("actors")];
    let mut read = 0;
    while let Some(path) = files.pop() {
        // The fake etcd of the adapter's tests has to answer every call.
        if path.ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).expect("a directory").map(|e| e.expect("an entry").path()));
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            assert!(!text.to_lowercase().contains("memberupdate"), "{}", path.display());
            assert!(!text.contains("member_update"), "{}", path.display());
            read += 1;
        }
    }
    assert!(read > 50, "only {read} source files were read");
}
