//! Files that are written beside and renamed: a full disk or a kill in between leaves the old ones intact.

use std::fs::Metadata;
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// Writes `bytes` to `path`, which afterwards holds either its old contents or all of the new.
///
/// A link is followed, a file that is there keeps its permissions, and what is no regular file is refused.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let target = std::fs::canonicalize(path);
    let path = target.as_deref().unwrap_or(path);
    let failed = |source| Error::io(path, source);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = std::fs::metadata(path).ok();
    if there.as_ref().is_some_and(|there| !there.is_file() && !there.is_dir()) {
        return Err(Error::io(path, std::io::Error::new(ErrorKind::InvalidInput, "is no regular file")));
    }
    // tempfile wraps the system's errors and hides their numbers.
    let mut number = None;
    let create = |beside: &Path| new_file(beside).inspect_err(|error| number = error.raw_os_error());
    let made = tempfile::Builder::new().prefix(".writing-").make_in(folder, create);
    let mut file = made.map_err(|error| failed(number.map_or(error, std::io::Error::from_raw_os_error)))?;
    file.as_file_mut().write_all(bytes).map_err(failed)?;
    if let Some(there) = there.filter(Metadata::is_file) {
        file.as_file().set_permissions(there.permissions()).map_err(failed)?;
    }
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// A file that isn't there yet, with the permissions that the umask leaves.
fn new_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)
}

/// Puts the folder `staged` in the place of `target`, which lies in the same file system, and removes what was there.
pub fn replace_folder(staged: &Path, target: &Path) -> Result<()> {
    let failed = |source| Error::io(target, source);
    // Whether there is such a folder is for the file system to say: another process may make it meanwhile.
    match std::fs::rename(staged, target) {
        Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
        done => return done.map_err(failed),
    }
    exchange(staged, target).map_err(failed)?;
    std::fs::remove_dir_all(staged).map_err(|source| Error::io(staged, source))
}

/// Swaps two folders in one step of the file system.
#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        // A file system that can't exchange.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => exchange_by_three(a, b),
        done => Ok(done?),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(a: &Path, b: &Path) -> std::io::Result<()> {
    exchange_by_three(a, b)
}

/// The same by three renames; a kill in between leaves the old folder under another name beside it.
fn exchange_by_three(a: &Path, b: &Path) -> std::io::Result<()> {
    let mut aside = b.as_os_str().to_owned();
    aside.push(".replaced");
    std::fs::rename(b, &aside)?;
    std::fs::rename(a, b)?;
    std::fs::rename(&aside, a)
}
