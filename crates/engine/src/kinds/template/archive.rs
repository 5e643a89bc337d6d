//! The archive that a version is built from. Pure: the same files are the same bytes, on any machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

/// Files by their paths, which have `/` between their parts.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The largest sum of all files. Templates are text; Coder's own command line stops at 1 MiB.
pub(crate) const LARGEST: usize = 10 * 1024 * 1024;

/// Packs files into a tar archive: sorted, without owners and times, every file with the same mode.
pub(crate) fn pack(files: &Files) -> Result<Vec<u8>, String> {
    check(files)?;
    let mut archive = tar::Builder::new(Vec::new());
    let packed = || -> io::Result<Vec<u8>> {
        for folder in folders(files) {
            archive
                .append(&header(&format!("{folder}/"), tar::EntryType::Directory, 0o755, 0)?, io::empty())?;
        }
        for (path, content) in files {
            let size = content.len() as u64;
            archive.append(&header(path, tar::EntryType::Regular, 0o644, size)?, content.as_slice())?;
        }
        archive.into_inner()
    };
    packed().map_err(|error| format!("the files cannot be packed: {error}"))
}

fn header(path: &str, kind: tar::EntryType, mode: u32, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    Ok(header)
}

/// Every folder that a file is in, parents first.
fn folders(files: &Files) -> BTreeSet<&str> {
    let parents = |path: &'_ str| path.match_indices('/').map(|(at, _)| at).collect::<Vec<_>>();
    files.keys().flat_map(|path| parents(path).into_iter().filter_map(|at| path.get(..at))).collect()
}

fn check(files: &Files) -> Result<(), String> {
    if files.is_empty() {
        return Err("there are no files".to_owned());
    }
    let size: usize = files.values().map(Vec::len).sum();
    if size > LARGEST {
        return Err(format!("the files are {size} bytes in all, and at most {LARGEST} are published"));
    }
    for path in files.keys() {
        check_path(path)?;
    }
    let folders = folders(files);
    match files.keys().find(|it| folders.contains(it.as_str())) {
        Some(both) => Err(format!("{both} is a file and a folder")),
        None => Ok(()),
    }
}

/// Refuses a path that leads out of the folder that the archive is unpacked in, or that not every machine reads the same.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let is_part = |it: &str| !matches!(it, "" | "." | "..");
    let is_plain = !path.contains(['\\', '\0']) && !path.chars().any(char::is_control);
    if is_plain && path.len() <= 255 && path.split('/').all(is_part) {
        return Ok(());
    }
    Err(format!("{path:?} is no path of a file: it must be relative, with `/` between its parts and no `..`"))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn same_files_are_the_same_bytes_on_any_machine() {
        let one = files(&[("main.tf", "a"), ("modules/a/main.tf", "b"), ("README.md", "")]);
        let packed = pack(&one).unwrap();
        assert_eq!(packed, pack(&one).unwrap());
        let digest = base16ct::lower::encode_string(&Sha256::digest(&packed));
        assert_eq!(digest, GOLDEN, "another digest publishes a new version of every template");
        assert_ne!(packed, pack(&files(&[("main.tf", "c")])).unwrap());
    }

    #[test]
    fn archive_has_folders_before_files_and_no_owner_or_time() {
        let packed = pack(&files(&[("b/c/d.tf", "text"), ("a.tf", "")])).unwrap();
        let mut archive = tar::Archive::new(packed.as_slice());
        let entries: Vec<(String, u32, u64)> = archive
            .entries()
            .unwrap()
            .map(|it| {
                let entry = it.unwrap();
                let header = entry.header();
                assert_eq!(
                    (header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()),
                    (0, 0, 0)
                );
                let path = entry.path().unwrap().display().to_string();
                (path, header.mode().unwrap(), header.size().unwrap())
            })
            .collect();
        let expected = [("b", 0o755, 0), ("b/c", 0o755, 0), ("a.tf", 0o644, 0), ("b/c/d.tf", 0o644, 4)];
        let shown: Vec<(&str, u32, u64)> =
            entries.iter().map(|(path, mode, size)| (path.trim_end_matches('/'), *mode, *size)).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for bad in
            ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a\\b", "a/", "a\nb", &"a".repeat(256)]
        {
            assert!(pack(&files(&[(bad, "x")])).is_err(), "{bad:?}");
        }
        assert!(pack(&files(&[("a", "x"), ("a/b", "x")])).unwrap_err().contains("a is a file and a folder"));
        assert!(pack(&Files::new()).is_err());
        let large = Files::from([("a".to_owned(), vec![0; LARGEST + 1])]);
        assert!(pack(&large).unwrap_err().contains("10485761 bytes"));
    }

    const GOLDEN: &str = "0b6fea6b313bb9486d33e2701d15dc22fa8d8576d4362c4de05ad7c01e7132ec";
}
