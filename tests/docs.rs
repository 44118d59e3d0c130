//! The documentation, where it can be checked: every reason is explained in the operator's own words, every
//! link leads somewhere, the map names every entry, and every decision is listed.

#![allow(clippy::expect_used, clippy::panic, reason = "a helper of a test fails the test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use etcd_operator_api::Reason;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every page, below the root and below `docs`.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for directory in ["", "docs", "docs/adr"] {
        for entry in fs::read_dir(root().join(directory)).expect("the directory can be listed") {
            let path = entry.expect("the directory can be listed").path();
            if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

fn reason_tables() -> String {
    let mut text = String::new();
    for (title, warning) in [("May need you", true), ("Nothing to do, or a step that was taken", false)] {
        let _ = write!(text, "\n### {title}\n\n| reason | what it means and what to do |\n| --- | --- |\n");
        for reason in Reason::ALL.iter().filter(|r| r.is_warning() == warning) {
            let help: Vec<&str> = reason.help().split_whitespace().collect();
            let _ = writeln!(text, "| `{reason}` | {} |", help.join(" "));
        }
    }
    text + "\n"
}

#[test]
fn operations_explains_every_reason_in_the_operators_own_words() {
    let (begin, end) = ("<!-- reasons: begin -->\n", "<!-- reasons: end -->");
    let text = read("docs/operations.md");
    let (before, rest) = text.split_once(begin).expect("the page has the begin mark");
    let (tables, after) = rest.split_once(end).expect("the page has the end mark");
    let wanted = reason_tables();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{before}{begin}{wanted}{end}{after}");
        fs::write(root().join("docs/operations.md"), page).expect("the page can be written");
        return;
    }
    let stale: Vec<&str> = wanted.lines().filter(|line| !tables.contains(line)).collect();
    assert!(tables == wanted, "run UPDATE_DOCS=1 cargo test --test docs; missing: {stale:#?}");
}

#[test]
fn every_link_to_a_file_leads_to_one() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page can be read");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let file = link.split('#').next().unwrap_or_default();
            let directory = page.parent().expect("a page is in a directory");
            if !link.contains("://") && !file.is_empty() && !directory.join(file).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_that_a_page_names_exists() {
    let mut missing = BTreeSet::new();
    for page in pages().iter().filter(|p| !p.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(page).expect("a page can be read");
        for word in text.split('`').skip(1).step_by(2) {
            let named = ["src/", "actors/", "tests/", "deploy/", "docs/", ".ci/", "benches/"];
            let path = word.split([' ', '<', '*']).next().unwrap_or_default();
            let whole = path == word && named.iter().any(|n| path.starts_with(n));
            if whole && !root().join(path).exists() {
                missing.insert(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_map_names_every_entry_at_the_top() {
    let listed = Command::new("git").args(["ls-files"]).current_dir(root()).output();
    let listed = match listed {
        Ok(out) if out.status.success() => String::from_utf8(out.stdout).expect("names are text"),
        // An archive of the sources has no list of what belongs to them.
        _ => return,
    };
    let map = read("ARCHITECTURE.md");
    let entries: BTreeSet<String> = listed
        .lines()
        .map(|path| path.split_once('/').map_or(path.to_owned(), |(top, _)| format!("{top}/")))
        .collect();
    let missing: Vec<_> = entries.iter().filter(|entry| !map.contains(&format!("`{entry}`"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {missing:?}");
}

#[test]
fn every_decision_is_in_the_list_of_decisions() {
    let list = read("docs/adr/README.md");
    for page in pages() {
        let name = page.file_name().unwrap_or_default().to_string_lossy();
        let decision = page.parent().is_some_and(|p| p.ends_with("docs/adr")) && name != "README.md";
        assert!(!decision || list.contains(&format!("({name})")), "{name} is not listed");
    }
}

#[test]
fn the_makefile_explains_each_of_its_verbs_and_the_readme_names_the_two_that_matter() {
    let makefile = read("Makefile");
    let phony = makefile.lines().find_map(|l| l.strip_prefix(".PHONY: ")).expect("the verbs are listed");
    for verb in phony.split_whitespace() {
        let explained = |l: &str| l.starts_with(&format!("{verb}:")) && l.contains("## ");
        assert!(makefile.lines().any(explained), "make {verb} is not explained");
    }
    let readme = read("README.md");
    assert!(readme.contains("make demo ") && readme.contains("make test "));
}

#[test]
fn every_step_of_ci_is_in_the_table_that_says_how_to_repeat_it() {
    let table = read("docs/development.md");
    for line in read(".ci/test").lines().map(str::trim) {
        let Some(step) = line.split("step ").nth(1).and_then(|rest| rest.split_whitespace().next()) else {
            continue;
        };
        let fixed = step.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(!fixed || table.contains(&format!("| {step} |")), "docs/development.md lacks {step}");
    }
}
