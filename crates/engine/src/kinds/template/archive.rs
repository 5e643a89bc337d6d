//! The archive that a version is built from. Pure: the same files are the same bytes, on any machine. Archives of others are unpacked
//! in memory, and only where every entry is a file or a folder inside of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read as _},
};

use crate::pipeline::export::SourceFile;

/// Files by their paths, which have `/` between their parts.
pub(crate) type Files = BTreeMap<String, SourceFile>;

/// The largest sum of all files. Templates are text; Coder's own command line stops at 1 MiB.
pub(crate) const LARGEST: usize = 10 * 1024 * 1024;
/// The one hidden file that belongs to a template.
const LOCK: &str = ".terraform.lock.hcl";
/// The most files.
pub(crate) const MOST_FILES: usize = 5000;
/// The bit of a mode by which a file is executable, as Git reads it.
pub(crate) const EXECUTABLE: u32 = 0o100;

/// Packs files into a tar archive: sorted, without owners and times, and of every mode only whether the file is executable.
pub(crate) fn pack(files: &Files) -> Result<Vec<u8>, String> {
    check(files)?;
    let mut archive = tar::Builder::new(Vec::new());
    let packed = || -> io::Result<Vec<u8>> {
        for folder in folders(files) {
            archive
                .append(&header(&format!("{folder}/"), tar::EntryType::Directory, 0o755, 0)?, io::empty())?;
        }
        for (path, SourceFile { content, is_executable }) in files {
            let size = content.len() as u64;
            let mode = if *is_executable { 0o755 } else { 0o644 };
            archive.append(&header(path, tar::EntryType::Regular, mode, size)?, content.as_slice())?;
        }
        archive.into_inner()
    };
    packed().map_err(|error| format!("the files cannot be packed: {error}"))
}

/// Unpacks a tar archive of another tool. Refuses what [`pack`] would not have packed: links, devices, paths that lead elsewhere, a
/// path twice, and more than [`LARGEST`] bytes or [`MOST_FILES`] entries.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Files, String> {
    let unreadable = |error: io::Error| format!("the archive cannot be read: {error}");
    let mut files = Files::new();
    let mut left = LARGEST as u64;
    let mut archive = tar::Archive::new(bytes);
    for (number, entry) in archive.entries().map_err(unreadable)?.enumerate() {
        let mut entry = entry.map_err(unreadable)?;
        let path = String::from_utf8(entry.path_bytes().into_owned());
        let path = path.map_err(|_| "the archive has a path that is no text".to_owned())?;
        if number >= MOST_FILES {
            return Err(format!("the archive has more than {MOST_FILES} entries"));
        }
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            continue;
        }
        let path = path.trim_start_matches("./");
        if kind.is_dir() {
            let folder = path.trim_end_matches('/');
            if !matches!(folder, "" | ".") {
                check_path(folder)?;
            }
            continue;
        }
        if !kind.is_file() {
            return Err(format!("{path:?} is neither a file nor a folder: links and devices are refused"));
        }
        check_path(path)?;
        let mut content = Vec::new();
        let read = entry.by_ref().take(left + 1).read_to_end(&mut content).map_err(unreadable)? as u64;
        left = left
            .checked_sub(read)
            .ok_or_else(|| format!("the files are more than {LARGEST} bytes in all"))?;
        if read != entry.size() {
            return Err(format!("the archive ends within {path:?}"));
        }
        let is_executable = entry.header().mode().is_ok_and(|it| it & EXECUTABLE != 0);
        if files.insert(path.to_owned(), SourceFile { content, is_executable }).is_some() {
            return Err(format!("{path:?} is in the archive twice"));
        }
    }
    check(&files)?;
    Ok(files)
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
    let size: usize = files.values().map(|it| it.content.len()).sum();
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

/// Whether Coder's own command line leaves an entry of a directory out: hidden ones, and Terraform's state and values of variables, which
/// hold secrets.
pub fn is_left_out(name: &str) -> bool {
    let is_hidden = name.starts_with('.') && name != LOCK;
    let is_values = ["terraform.tfvars", "terraform.tfvars.json"].contains(&name)
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".auto.tfvars.json");
    is_hidden || is_values || name.contains(".tfstate")
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec().into())).collect()
    }

    /// The same with one executable file.
    fn with_script(mut files: Files, path: &str) -> Files {
        files.insert(path.to_owned(), SourceFile { content: b"#!/bin/sh".to_vec(), is_executable: true });
        files
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
    fn executable_bit_is_kept_and_nothing_else_of_a_mode() {
        let script = with_script(files(&[("main.tf", "a")]), "bin/run.sh");
        let packed = pack(&script).unwrap();
        assert_eq!(unpack(&packed).unwrap(), script);
        let mut plain = script.clone();
        for file in plain.values_mut() {
            file.is_executable = false;
        }
        assert_ne!(pack(&plain).unwrap(), packed);
        let one = files(&[("main.tf", "a")]);
        for (mode, is_executable) in
            [(0o600, false), (0o664, false), (0o700, true), (0o777, true), (0o011, false)]
        {
            let mut other = header("main.tf", tar::EntryType::Regular, mode, 1).unwrap();
            other.set_cksum();
            let mut archive = tar::Builder::new(Vec::new());
            archive.append(&other, &b"a"[..]).unwrap();
            let unpacked = unpack(&archive.into_inner().unwrap()).unwrap();
            assert_eq!(unpacked["main.tf"].is_executable, is_executable, "{mode:o}");
            assert_eq!(pack(&unpacked).unwrap() == pack(&one).unwrap(), !is_executable, "{mode:o}");
        }
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
        let large = Files::from([("a".to_owned(), vec![0; LARGEST + 1].into())]);
        assert!(pack(&large).unwrap_err().contains("10485761 bytes"));
    }

    #[test]
    fn hidden_entries_state_and_values_are_left_out() {
        for name in [
            ".git",
            ".env",
            ".terraform",
            "prod.tfstate",
            "terraform.tfstate.backup",
            "terraform.tfvars",
            "a.auto.tfvars.json",
        ] {
            assert!(is_left_out(name), "{name}");
        }
        for name in ["main.tf", LOCK, "example.tfvars", "README.md", "build"] {
            assert!(!is_left_out(name), "{name}");
        }
    }

    /// An archive of one entry, with a path that the writer itself would refuse.
    fn hostile(path: &str, kind: tar::EntryType, link: &str, content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o777);
        header.set_size(content.len() as u64);
        if !link.is_empty() {
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        let mut archive = tar::Builder::new(Vec::new());
        archive.append(&header, content).unwrap();
        archive.into_inner().unwrap()
    }

    #[test]
    fn unpacked_archive_is_packed_again_as_the_same_bytes() {
        let one = files(&[("main.tf", "a"), ("modules/a/main.tf", "b"), (".terraform.lock.hcl", "c")]);
        let packed = pack(&one).unwrap();
        assert_eq!(unpack(&packed).unwrap(), one);
        // Another tool: a folder for the root, paths that begin with a dot, owners, times, no end mark.
        let mut archive = tar::Builder::new(Vec::new());
        for (path, kind, text) in [
            ("./", tar::EntryType::Directory, ""),
            ("./modules/", tar::EntryType::Directory, ""),
            ("./modules/a/main.tf", tar::EntryType::Regular, "b"),
            ("./main.tf", tar::EntryType::Regular, "a"),
            (".terraform.lock.hcl", tar::EntryType::Regular, "c"),
        ] {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(if kind.is_dir() { 0o755 } else { 0o664 });
            header.set_mtime(1_700_000_000);
            header.set_uid(1000);
            header.set_size(text.len() as u64);
            header.set_cksum();
            archive.append(&header, text.as_bytes()).unwrap();
        }
        let other = archive.into_inner().unwrap();
        let without_end = &other[..other.len() - 1024];
        assert_eq!(pack(&unpack(without_end).unwrap()).unwrap(), packed);
    }

    #[test]
    fn hostile_archives_are_refused() {
        use tar::EntryType as Type;
        for (path, kind, link) in [
            ("../main.tf", Type::Regular, ""),
            ("a/../../main.tf", Type::Regular, ""),
            ("/etc/main.tf", Type::Regular, ""),
            ("a\\b.tf", Type::Regular, ""),
            ("../folder", Type::Directory, ""),
            ("/", Type::Regular, ""),
            ("main.tf", Type::Symlink, "/etc/passwd"),
            ("main.tf", Type::Link, "../other"),
            ("main.tf", Type::Char, ""),
            ("main.tf", Type::Block, ""),
            ("main.tf", Type::Fifo, ""),
            ("main.tf", Type::GNUSparse, ""),
        ] {
            assert!(unpack(&hostile(path, kind, link, b"")).is_err(), "{path} {kind:?}");
        }
        let twice = [hostile("a.tf", Type::Regular, "", b"1"), hostile("a.tf", Type::Regular, "", b"2")];
        let twice = [&twice[0][..1024], &twice[1]].concat();
        assert!(unpack(&twice).unwrap_err().contains("twice"), "{:?}", unpack(&twice));
        let large = hostile("a.tf", Type::Regular, "", &vec![0; LARGEST + 1]);
        assert!(unpack(&large).unwrap_err().contains("more than"));
        let many: Vec<u8> = (0..=MOST_FILES)
            .flat_map(|it| hostile(&format!("{it}.tf"), Type::Regular, "", b"")[..512].to_vec())
            .collect();
        assert!(unpack(&many).unwrap_err().contains("entries"));
        assert!(unpack(b"no archive").is_err() && unpack(b"").is_err());
        // The header promises more than there is.
        let short = &hostile("a.tf", Type::Regular, "", &[0; 2000])[..1024];
        assert!(unpack(short).is_err());
    }

    const GOLDEN: &str = "0b6fea6b313bb9486d33e2701d15dc22fa8d8576d4362c4de05ad7c01e7132ec";
}
