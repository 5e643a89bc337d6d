//! Which local programs an image stands for.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The images that the node can run.
#[derive(Debug)]
pub(crate) struct Images {
    /// By repository without registry, tag and digest.
    images: BTreeMap<String, Image>,
    /// Where images are added while the node runs: `REPOSITORY/PROGRAM`.
    added: PathBuf,
}

/// One image: its programs and what it runs by itself.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// Local programs by the name that a command has inside the image.
    pub(crate) programs: BTreeMap<String, PathBuf>,
    /// What runs when a container names no command.
    pub(crate) entrypoint: Vec<String>,
}

impl Images {
    /// No image but those that are added to that folder.
    pub(crate) fn new(added: PathBuf) -> Self {
        Self { images: BTreeMap::new(), added }
    }

    /// Adds or replaces an image.
    pub(crate) fn insert(&mut self, repository: &str, image: Image) {
        self.images.insert(repository.to_owned(), image);
    }

    /// Where images are added while the node runs.
    pub(crate) fn added(&self) -> &Path {
        &self.added
    }

    /// The image of a reference, whatever its registry, tag and digest.
    pub(crate) fn find(&self, reference: &str) -> Option<Image> {
        let repository = repository(reference);
        self.images.get(repository).cloned().or_else(|| self.find_added(repository))
    }

    /// An added image: its one program has the repository's last word for a name.
    fn find_added(&self, repository: &str) -> Option<Image> {
        let name = repository.rsplit('/').next()?;
        let program = self.added.join(repository).join(name);
        program.exists().then(|| Image {
            programs: BTreeMap::from([(name.to_owned(), program)]),
            entrypoint: vec![name.to_owned()],
        })
    }
}

impl Image {
    /// The local program of a command's first word. A word that the image does not have is the machine's: the shell
    /// and its tools, as an image would bring them along.
    pub(crate) fn program<'a>(&'a self, word: &'a str) -> &'a Path {
        let name = word.rsplit('/').next().unwrap_or(word);
        self.programs.get(name).map_or_else(|| Path::new(word), PathBuf::as_path)
    }
}

/// The part of a reference that says what the image is.
fn repository(reference: &str) -> &str {
    let reference = reference.split('@').next().unwrap_or(reference);
    // A first component with a dot or a port, or `localhost`, is a registry.
    let path = match reference.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => reference,
    };
    path.split(':').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_found_whatever_its_registry_tag_and_digest() {
        for reference in [
            "coder/coder",
            "coder/coder:v2.36.0",
            "registry.test/coder/coder:v2.36.0",
            "registry.test:5000/coder/coder@sha256:00",
            "localhost/coder/coder:latest@sha256:00",
        ] {
            assert_eq!(repository(reference), "coder/coder", "{reference}");
        }
        assert_eq!(repository("bed/host"), "bed/host");
    }

    #[test]
    fn an_image_that_is_added_later_is_found_and_runs_its_program() {
        let folder = std::env::temp_dir().join(format!("images-{}", uuid::Uuid::new_v4()));
        let images = Images::new(folder.clone());
        assert!(images.find("registry.test/acme/tool:v1").is_none());
        std::fs::create_dir_all(folder.join("acme/tool")).unwrap();
        std::fs::write(folder.join("acme/tool/tool"), "").unwrap();
        let image = images.find("registry.test/acme/tool:v1").unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(image.entrypoint, ["tool"]);
        assert_eq!(image.program("tool"), folder.join("acme/tool/tool"));
    }

    #[test]
    fn a_command_by_any_path_is_the_images_program() {
        let programs = BTreeMap::from([("coder".to_owned(), PathBuf::from("/parts/coder"))]);
        let image = Image { programs, entrypoint: Vec::new() };
        assert_eq!(image.program("/opt/coder"), Path::new("/parts/coder"));
        assert_eq!(image.program("coder"), Path::new("/parts/coder"));
        assert_eq!(image.program("/bin/sh"), Path::new("/bin/sh"));
    }
}
