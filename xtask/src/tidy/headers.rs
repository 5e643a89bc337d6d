//! Every file says what it owns before anything else.

use super::tree::{Complaint, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let rust = tree.with_ending(".rs").filter(|(path, text)| lacks_header(path, text));
    let rust =
        rust.map(|(path, _)| Complaint::new(path, 1, "has no `//!` header that says what the file owns"));
    let shell = tree.with_ending(".sh").filter(|(_, text)| !text.starts_with('#'));
    let shell =
        shell.map(|(path, _)| Complaint::new(path, 1, "has no comment that says what the script does"));
    rust.chain(shell).collect()
}

/// The tests of a module, in a file beside it, are introduced by the module.
fn lacks_header(path: &str, text: &str) -> bool {
    !path.ends_with("/tests.rs") && !text.starts_with("//! ")
}

#[cfg(test)]
mod tests {
    use super::lacks_header;

    #[test]
    fn a_file_needs_a_header_unless_it_holds_a_modules_tests() {
        assert!(lacks_header("src/a.rs", "use std::fs;\n"));
        assert!(!lacks_header("src/a.rs", "//! Owns a.\n"));
        assert!(!lacks_header("src/a/tests.rs", "use super::*;\n"));
    }
}
