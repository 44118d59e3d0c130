//! Writes a container image as an OCI layout archive, without a container engine.
//!
//! One layer, reproducible: entries are sorted, owned by root and dated 1970, so equal contents
//! give an equal digest. Reads the files that go in and writes one archive; runs nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::{Context, Error, Result};

/// What an image holds and how it is run. Fill it, then [`write`](Image::write) it.
#[derive(Debug, Clone, Default)]
pub struct Image {
    reference: String,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    user: String,
    labels: BTreeMap<String, String>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Directory { mode: u32 },
    File { source: PathBuf, mode: u32 },
    Bytes { data: Vec<u8>, mode: u32 },
    Link { target: String },
}

impl Image {
    /// An empty image. `reference` is its name with a tag, as a Pod has it: `etcd-operator:dev`.
    pub fn new(reference: impl Into<String>) -> Self {
        Image { reference: reference.into(), ..Image::default() }
    }

    /// The program that is always run.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// The arguments that a Pod's `args` replaces.
    #[must_use]
    pub fn command<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// One environment variable, `NAME=value`.
    #[must_use]
    pub fn env(mut self, assignment: impl Into<String>) -> Self {
        self.environment.push(assignment.into());
        self
    }

    /// `uid:gid` of the first process. Unset it is root.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// A label of the image, such as `org.opencontainers.image.version`.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// A file of this machine at `path` in the image. It is read when the image is written.
    #[must_use]
    pub fn file(self, path: &str, source: impl Into<PathBuf>, mode: u32) -> Self {
        self.entry(path, Entry::File { source: source.into(), mode })
    }

    /// A file with these contents.
    #[must_use]
    pub fn bytes(self, path: &str, data: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entry(path, Entry::Bytes { data: data.into(), mode })
    }

    /// A directory. Parents of whatever is added are made by themselves, with mode 0755.
    #[must_use]
    pub fn directory(self, path: &str, mode: u32) -> Self {
        self.entry(path, Entry::Directory { mode })
    }

    /// A symbolic link.
    #[must_use]
    pub fn link(self, path: &str, target: impl Into<String>) -> Self {
        self.entry(path, Entry::Link { target: target.into() })
    }

    fn entry(mut self, path: &str, entry: Entry) -> Self {
        let path = path.trim_matches('/');
        for (i, _) in path.match_indices('/') {
            self.entries.entry(path[..i].to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }

    /// Writes the archive to `out`, complete or not at all, and returns the manifest's digest
    /// (`sha256:…`).
    ///
    /// # Errors
    /// When the reference has no tag, a source cannot be read, or the archive cannot be written.
    pub fn write(&self, out: &Path) -> Result<String> {
        let tag = match self.reference.rsplit_once(':') {
            Some((_, tag)) if !tag.is_empty() && !tag.contains('/') => tag,
            _ => return Err(Error::new(format!("image reference {:?} has no tag", self.reference))),
        };
        let layer = self.layer()?;
        let layer_digest = digest(&layer);
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut config = json!({
            "Env": self.environment_with_path(),
            "WorkingDir": "/",
        });
        for (key, value) in [("Entrypoint", &self.entrypoint), ("Cmd", &self.command)] {
            if !value.is_empty() {
                config[key] = json!(value);
            }
        }
        if !self.user.is_empty() {
            config["User"] = json!(self.user);
        }
        if !self.labels.is_empty() {
            config["Labels"] = json!(self.labels);
        }
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            "history": [{"created": "1970-01-01T00:00:00Z"}],
        })
        .to_string()
        .into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor(&config, "application/vnd.oci.image.config.v1+json"),
            "layers": [descriptor(&layer, "application/vnd.oci.image.layer.v1.tar")],
        })
        .to_string()
        .into_bytes();
        let mut entry = descriptor(&manifest, "application/vnd.oci.image.manifest.v1+json");
        entry["platform"] = json!({"architecture": architecture, "os": "linux"});
        entry["annotations"] = json!({
            "io.containerd.image.name": full_name(&self.reference),
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [entry],
        })
        .to_string();

        let doing = format!("writing {}", out.display());
        let mut part = out.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let mut file = BufWriter::new(File::create(&part).context(&doing)?);
        let written = (|| {
            let mut archive = tar::Builder::new(&mut file);
            append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
            append(&mut archive, "index.json", index.as_bytes(), 0o644)?;
            append_directory(&mut archive, "blobs", 0o755)?;
            append_directory(&mut archive, "blobs/sha256", 0o755)?;
            let mut blobs: Vec<_> = [&layer, &config, &manifest].map(|b| (digest(b), b)).into();
            blobs.sort_by(|a, b| a.0.cmp(&b.0));
            for (digest, blob) in blobs {
                append(&mut archive, &digest.replacen("sha256:", "blobs/sha256/", 1), blob, 0o644)?;
            }
            archive.finish()
        })();
        written.and_then(|()| file.flush()).and_then(|()| fs::rename(&part, out)).context(&doing)?;
        Ok(digest(&manifest))
    }

    fn environment_with_path(&self) -> Vec<String> {
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
        let given = self.environment.iter().any(|e| e.starts_with("PATH="));
        let path = if given { None } else { Some(path) };
        path.into_iter().chain(self.environment.iter().cloned()).collect()
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let doing = format!("adding {path} to image {}", self.reference);
            match entry {
                Entry::Directory { mode } => append_directory(&mut archive, path, *mode).context(doing)?,
                Entry::Bytes { data, mode } => append(&mut archive, path, data, *mode).context(doing)?,
                Entry::File { source, mode } => {
                    let data =
                        fs::read(source).context(format_args!("{doing}, reading {}", source.display()))?;
                    append(&mut archive, path, &data, *mode).context(doing)?;
                }
                Entry::Link { target } => {
                    let mut header = header(0o777, tar::EntryType::Symlink, 0);
                    archive.append_link(&mut header, path, target).context(doing)?;
                }
            }
        }
        archive.into_inner().context("closing the layer")
    }
}

/// The name under which a container runtime looks an image up: without a registry it is Docker's,
/// and there without a project it is "library".
fn full_name(reference: &str) -> String {
    match reference.split_once('/') {
        None => format!("docker.io/library/{reference}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => reference.to_owned(),
        Some(_) => format!("docker.io/{reference}"),
    }
}

fn header(mode: u32, kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_entry_type(kind);
    header
}

fn append<W: Write>(archive: &mut tar::Builder<W>, path: &str, data: &[u8], mode: u32) -> io::Result<()> {
    let mut header = header(mode, tar::EntryType::Regular, data.len() as u64);
    archive.append_data(&mut header, path, data)
}

fn append_directory<W: Write>(archive: &mut tar::Builder<W>, path: &str, mode: u32) -> io::Result<()> {
    let mut header = header(mode, tar::EntryType::Directory, 0);
    archive.append_data(&mut header, format!("{path}/"), io::empty())
}

fn digest(data: &[u8]) -> String {
    let hex: String = Sha256::digest(data).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

fn descriptor(data: &[u8], media_type: &str) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": digest(data), "size": data.len()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("testbed-image-{}-{name}", std::process::id()))
    }

    #[test]
    fn the_same_contents_give_the_same_archive_in_whatever_order_they_were_added() {
        let (a, b) = (scratch("a"), scratch("b"));
        let one = Image::new("example/x:1").bytes("/bin/x", "x", 0o755).directory("/tmp", 0o1777);
        let two = Image::new("example/x:1").directory("/tmp", 0o1777).bytes("/bin/x", "x", 0o755);
        assert_eq!(one.write(&a).unwrap(), two.write(&b).unwrap());
        assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
        for f in [a, b] {
            fs::remove_file(f).unwrap();
        }
    }

    #[test]
    fn an_archive_holds_every_blob_that_its_index_names() {
        let out = scratch("c");
        let digest = Image::new("example/x:1").bytes("/etc/x", "x", 0o644).write(&out).unwrap();
        let mut archive = tar::Archive::new(File::open(&out).unwrap());
        let names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().to_string_lossy().into_owned())
            .collect();
        assert!(names.contains(&digest.replacen("sha256:", "blobs/sha256/", 1)), "{names:?}");
        assert_eq!(names.iter().filter(|n| n.starts_with("blobs/sha256/") && n.len() > 60).count(), 3);
        fs::remove_file(out).unwrap();
    }

    #[test]
    fn a_short_name_is_stored_as_the_kubelet_will_ask_for_it() {
        assert_eq!(full_name("etcd-operator:dev"), "docker.io/library/etcd-operator:dev");
        assert_eq!(full_name("someone/etcd-operator:dev"), "docker.io/someone/etcd-operator:dev");
        assert_eq!(full_name("localhost:5000/x:1"), "localhost:5000/x:1");
        assert_eq!(full_name("quay.io/coreos/etcd:v3.6.16"), "quay.io/coreos/etcd:v3.6.16");
    }

    #[test]
    fn a_reference_without_a_tag_is_refused_because_a_pod_would_look_for_latest() {
        let error = Image::new("localhost:5000/x").write(&scratch("d")).unwrap_err();
        assert!(error.to_string().contains("has no tag"), "{error}");
    }
}
