//! Ceilings for files and functions.

use proc_macro2::Span;
use syn::{
    ImplItemFn, ItemFn, TraitItemFn,
    spanned::Spanned as _,
    visit::{self, Visit},
};

use super::tree::{Complaint, Tree};

const FILE: usize = 600;
const FUNCTION: usize = 80;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let rust = tree.with_ending(".rs").flat_map(|(path, text)| check_rust(path, text));
    let go = tree.with_ending(".go").flat_map(|(path, text)| check_length(path, text.lines().count()));
    rust.chain(go).collect()
}

fn check_rust(path: &str, text: &str) -> Vec<Complaint> {
    // Tests at the end of a file are counted apart: they are read on their own.
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text).lines().count();
    let mut complaints = check_length(path, code);
    match syn::parse_file(text) {
        Ok(file) => {
            let mut functions = Functions { path, complaints: Vec::new() };
            functions.visit_file(&file);
            complaints.append(&mut functions.complaints);
        }
        Err(error) => complaints.push(Complaint::new(path, error.span().start().line, format!("{error}"))),
    }
    complaints
}

fn check_length(path: &str, lines: usize) -> Vec<Complaint> {
    let what =
        format!("{lines} lines, and {FILE} are the ceiling: find the second subject and give it a file");
    if lines > FILE { vec![Complaint::new(path, FILE, what)] } else { Vec::new() }
}

struct Functions<'a> {
    path: &'a str,
    complaints: Vec<Complaint>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, body: Span) {
        let (first, last) = (body.start().line, body.end().line);
        let lines = last.saturating_sub(first) + 1;
        if lines > FUNCTION {
            let what = format!("`{name}` has {lines} lines, and {FUNCTION} are the ceiling");
            self.complaints.push(Complaint::new(self.path, first, what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.measure(&function.sig.ident, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.measure(&function.sig.ident, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig.ident, body.span());
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_above_the_ceiling_is_named() {
        let long = format!("fn short() {{}}\nfn long() {{\n{}}}\n", "    call();\n".repeat(79));
        let complaints = check_rust("a.rs", &long);
        assert_eq!(complaints, [Complaint::new("a.rs", 2, "`long` has 81 lines, and 80 are the ceiling")]);
    }

    #[test]
    fn tests_at_the_end_of_a_file_do_not_count_for_its_ceiling() {
        let tests =
            format!("//! A file.\n\n#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a line\n".repeat(700));
        assert_eq!(check_rust("a.rs", &tests), []);
        let code = "// a line\n".repeat(601);
        assert_eq!(check_rust("a.rs", &code).len(), 1);
    }
}
