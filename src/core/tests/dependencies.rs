//! This crate decides and does no I/O, so its dependency tree stays as short as this list.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::{collections::BTreeSet, process::Command};

/// Everything that may be linked with the decisions: `thiserror` and what its macro is made of.
const ALLOWED: [&str; 7] =
    ["etcd-operator-core", "thiserror", "thiserror-impl", "proc-macro2", "quote", "syn", "unicode-ident"];

#[test]
fn the_decisions_depend_on_nothing_that_does_io() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{lib}|{p}"])
        .args(["--package", "etcd-operator-core"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs, it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    let found: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_once('|')?.1.split_whitespace().next()).collect();
    assert!(found.contains("thiserror"), "this looks at the wrong tree:\n{tree}");
    let strangers: Vec<&&str> = found.iter().filter(|name| !ALLOWED.contains(name)).collect();
    assert!(strangers.is_empty(), "not on the list: {strangers:?}");
}
