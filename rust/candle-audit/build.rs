//! Finds the version of Candle that this build links, in the Cargo.lock of the workspace that is being built.
//!
//! The build folder lies below that workspace's `target`, so the lock is the first one above it. Where the target folder is elsewhere
//! the lock above the crate's own sources is taken, but not one inside them: a published crate carries the lock of its author.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let folder = |name: &str| env::var_os(name).map(PathBuf::from);
    let sources = folder("CARGO_MANIFEST_DIR");
    let below = [folder("OUT_DIR"), sources.as_deref().and_then(Path::parent).map(Path::to_owned)];
    for lock in below.iter().flatten().filter_map(|start| nearest_lock(start)) {
        println!("cargo:rerun-if-changed={}", lock.display());
        let text = fs::read_to_string(&lock).unwrap_or_default();
        if let Some(version) = only_version(&text, "candle-core") {
            println!("cargo:rustc-env=CANDLE_AUDIT_CANDLE_VERSION={version}");
            return;
        }
    }
}

fn nearest_lock(start: &Path) -> Option<PathBuf> {
    start.ancestors().map(|folder| folder.join("Cargo.lock")).find(|path| path.is_file())
}

/// The version of a package, if the lock holds exactly one.
fn only_version(lock: &str, package: &str) -> Option<String> {
    let name = format!("name = \"{package}\"");
    let mut found = lock.split("[[package]]").filter(|entry| entry.lines().any(|line| line == name));
    let entry = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let version = entry.lines().find_map(|line| line.strip_prefix("version = \""))?;
    Some(version.trim_end_matches('"').to_owned())
}
