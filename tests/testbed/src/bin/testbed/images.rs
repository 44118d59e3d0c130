//! The images that every node has: pause, busybox, and etcd in each version. Writes them once into
//! the cache beside the binaries they are made of.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use etcd_operator_testbed::image::Image;
use etcd_operator_testbed::layout::etcd_versions;
use etcd_operator_testbed::{Context, Error, Result};

/// Writes the archives that are missing and returns all of them.
pub(crate) fn standard(cache: &Path) -> Result<Vec<PathBuf>> {
    let dir = cache.join("images");
    fs::create_dir_all(&dir).context(format_args!("creating {}", dir.display()))?;
    let mut archives = Vec::new();
    let mut add = |name: String, image: &dyn Fn() -> Result<Image>| -> Result<()> {
        let path = dir.join(format!("{name}.tar"));
        if !path.exists() {
            image()?.write(&path)?;
        }
        archives.push(path);
        Ok(())
    };
    add("pause".into(), &|| Ok(pause(cache)))?;
    add("busybox".into(), &busybox)?;
    for version in etcd_versions() {
        add(format!("etcd-v{version}"), &|| Ok(etcd(cache, version)))?;
    }
    Ok(archives)
}

fn pause(cache: &Path) -> Image {
    Image::new("registry.k8s.io/pause:3.10").user("65535:65535").entrypoint(["/pause"]).file(
        "/pause",
        cache.join("bin/pause"),
        0o755,
    )
}

fn busybox() -> Result<Image> {
    let program = "/bin/busybox";
    let out = Command::new(program).arg("--list").stdin(Stdio::null()).output().context("running busybox")?;
    let applets = String::from_utf8(out.stdout).context("reading busybox's list of applets")?;
    let image = Image::new("docker.io/library/busybox:1")
        .command(["sh"])
        .file("/bin/busybox", program, 0o755)
        .directory("/tmp", 0o1777)
        .directory("/root", 0o700);
    let applets = applets.lines().filter(|a| *a != "busybox");
    Ok(applets.fold(image, |image, applet| image.link(&format!("/bin/{applet}"), "busybox")))
}

fn etcd(cache: &Path, version: &str) -> Image {
    let binaries = cache.join(format!("etcd-{version}"));
    ["etcd", "etcdctl", "etcdutl"].iter().fold(
        Image::new(format!("quay.io/coreos/etcd:v{version}"))
            .env(format!("ETCD_VERSION=v{version}"))
            .command(["/usr/local/bin/etcd"])
            .directory("/var/lib/etcd", 0o777)
            .directory("/tmp", 0o1777),
        |image, tool| image.file(&format!("/usr/local/bin/{tool}"), binaries.join(tool), 0o755),
    )
}

/// Parses the arguments of `testbed mkimage`: `SOURCE=DESTINATION[:MODE]`, mode in octal. Without a
/// mode the source's own is taken.
pub(crate) fn parse_file(argument: &str) -> Result<(PathBuf, String, u32)> {
    let wrong = || Error::new(format!("{argument:?} is not SOURCE=DESTINATION[:MODE]"));
    let (source, rest) = argument.split_once('=').ok_or_else(wrong)?;
    let (destination, mode) = match rest.rsplit_once(':') {
        Some((destination, mode)) => (destination, Some(u32::from_str_radix(mode, 8).map_err(|_| wrong())?)),
        None => (rest, None),
    };
    let mode = match mode {
        Some(mode) => mode,
        None => fs::metadata(source).context(format_args!("reading {source}"))?.mode() & 0o7777,
    };
    Ok((source.into(), destination.to_owned(), mode))
}
