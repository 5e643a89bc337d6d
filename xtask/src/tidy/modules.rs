//! Modules of a crate that refer to each other in a circle, and public types of one name.
//!
//! Edges are drawn between siblings: a reference from `a::b` to `c::d` is one from `a` to `c`, and one from `a::b` to `a::c`
//! is one from `b` to `c` within `a`. What tests refer to does not count.

use std::collections::{BTreeMap, BTreeSet};

use syn::{
    Attribute, Item, ItemMod, ItemUse, Path, UseTree, Visibility,
    visit::{self, Visit},
};

use super::tree::{Complaint, Tree};

/// The associated types of the trait of kinds. Every kind has them.
const OF_EVERY_KIND: [&str; 3] = ["Desired", "Observed", "Effect"];

/// A module by the names of the modules around it and its own.
type Module = Vec<String>;

/// The sources of one crate, by module.
type Sources<'a> = BTreeMap<Module, (&'a str, syn::File)>;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut crates: BTreeMap<&str, Sources<'_>> = BTreeMap::new();
    for (path, text) in tree.with_ending(".rs") {
        let Some((name, inside)) = path.strip_prefix("crates/").and_then(|it| it.split_once("/src/")) else {
            continue;
        };
        let Ok(file) = syn::parse_file(text) else { continue };
        crates.entry(name).or_default().insert(module(inside), (path, file));
    }
    let complaints =
        crates.values().flat_map(|sources| cycles(sources).into_iter().chain(namesakes(sources)));
    complaints.collect()
}

/// The module of a file below `src`.
fn module(inside: &str) -> Module {
    let names = inside.trim_end_matches(".rs").split('/').map(str::to_owned);
    names.filter(|it| it != "lib" && it != "main").collect()
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg") && it.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test")
    })
}

/// Modules that only tests have: declared with `#[cfg(test)]`.
fn tests(sources: &Sources<'_>) -> BTreeSet<Module> {
    let declared = sources.iter().flat_map(|(module, (_, file))| {
        let tests = file.items.iter().filter_map(|item| match item {
            Item::Mod(it) if is_test(&it.attrs) => Some(it.ident.to_string()),
            _ => None,
        });
        tests.map(|name| [module.clone(), vec![name]].concat())
    });
    declared.collect()
}

/// Everything that a file refers to within its crate, as paths that begin with `crate`, `self` or `super`.
#[derive(Default)]
struct References(Vec<Vec<String>>);

impl References {
    fn add(&mut self, tree: &UseTree, before: &[String]) {
        match tree {
            UseTree::Path(it) => self.add(&it.tree, &[before, &[it.ident.to_string()]].concat()),
            UseTree::Name(it) => self.0.push([before, &[it.ident.to_string()]].concat()),
            UseTree::Rename(it) => self.0.push([before, &[it.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.0.push(before.to_vec()),
            UseTree::Group(it) => it.items.iter().for_each(|tree| self.add(tree, before)),
        }
    }
}

impl<'ast> Visit<'ast> for References {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            self.add(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.0.push(path.segments.iter().map(|it| it.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The module that a path of a file leads to, as far as it names modules. `None` for a path that leaves the crate.
fn resolved(path: &[String], from: &Module, sources: &Sources<'_>) -> Option<Module> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => from.clone(),
        _ => return None,
    };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => {
                at.pop();
            }
            name => {
                let next = [at.clone(), vec![name.to_owned()]].concat();
                if !sources.contains_key(&next) {
                    break;
                }
                at = next;
            }
        }
    }
    Some(at)
}

/// For every module the siblings that it refers to.
fn edges(sources: &Sources<'_>) -> BTreeMap<Module, BTreeSet<Module>> {
    let tests = tests(sources);
    let is_of_tests = |module: &Module| tests.iter().any(|it| module.starts_with(it));
    let mut edges: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, (_, file)) in sources.iter().filter(|it| !is_of_tests(it.0)) {
        let mut references = References::default();
        references.visit_file(file);
        for target in references.0.iter().filter_map(|it| resolved(it, module, sources)) {
            let common = module.iter().zip(&target).take_while(|(one, other)| one == other).count();
            if common < module.len() && common < target.len() {
                edges.entry(module[..=common].to_vec()).or_default().insert(target[..=common].to_vec());
            }
        }
    }
    edges
}

/// Everything that a module leads to.
fn reachable(from: &Module, edges: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = next.pop() {
        for target in edges.get(&module).into_iter().flatten() {
            if found.insert(target.clone()) {
                next.push(target.clone());
            }
        }
    }
    found
}

fn cycles(sources: &Sources<'_>) -> Vec<Complaint> {
    let edges = edges(sources);
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        edges.keys().map(|it| (it, reachable(it, &edges))).collect();
    let mut complaints = Vec::new();
    let mut told = BTreeSet::new();
    for (module, targets) in reached.iter().filter(|(module, targets)| targets.contains(**module)) {
        let circle: Vec<String> = targets
            .iter()
            .filter(|it| reached.get(it).is_some_and(|back| back.contains(*module)))
            .map(|it| it.join("::"))
            .collect();
        if told.insert(circle.clone()) {
            let path = sources.get(*module).map_or("", |it| it.0);
            let what = format!("modules refer to each other in a circle: {}", circle.join(", "));
            complaints.push(Complaint::new(path, 1, what));
        }
    }
    complaints
}

/// Public types of one name.
fn namesakes(sources: &Sources<'_>) -> Vec<Complaint> {
    let mut types: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, file) in sources.values() {
        for item in &file.items {
            let (visibility, name) = match item {
                Item::Struct(it) => (&it.vis, &it.ident),
                Item::Enum(it) => (&it.vis, &it.ident),
                Item::Trait(it) => (&it.vis, &it.ident),
                Item::Type(it) => (&it.vis, &it.ident),
                _ => continue,
            };
            if matches!(visibility, Visibility::Public(_)) && !OF_EVERY_KIND.iter().any(|it| name == it) {
                types.entry(name.to_string()).or_default().push(path);
            }
        }
    }
    let several = types.into_iter().filter(|it| it.1.len() > 1);
    several
        .map(|(name, paths)| {
            let others = paths[1..].join(", ");
            Complaint::new(paths[0], 1, format!("`{name}` is also the name of a public type in {others}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| super::super::tree::File {
            path: format!("crates/a/src/{path}"),
            text: Some((*text).to_owned()),
        });
        let tree = Tree { files: files.collect() };
        check(&tree).into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn circle_is_found_through_folders_and_not_where_only_tests_refer_back() {
        let lib = ("lib.rs", "mod one; mod two;");
        let one = ("one/part.rs", "use crate::two::{Deep, Thing};");
        let back = "fn f() { crate::one::part::g() }";
        let found = complaints(&[lib, ("one.rs", "mod part;"), one, ("two.rs", back)]);
        assert_eq!(found, ["modules refer to each other in a circle: one, two"]);
        let only_tests = "#[cfg(test)] mod tests { use crate::one::part; }";
        assert_eq!(complaints(&[lib, ("one.rs", "mod part;"), one, ("two.rs", only_tests)]), [""; 0]);
    }

    #[test]
    fn parent_is_no_sibling_and_siblings_within_a_folder_are_compared() {
        let up = "use super::Shared;";
        assert_eq!(complaints(&[("one.rs", "mod part; use part::f;"), ("one/part.rs", up)]), [""; 0]);
        let found =
            complaints(&[("one.rs", ""), ("one/a.rs", "use super::b::B;"), ("one/b.rs", "use super::a::A;")]);
        assert_eq!(found, ["modules refer to each other in a circle: one::a, one::b"]);
    }

    #[test]
    fn public_types_have_names_of_their_own() {
        let found = complaints(&[("one.rs", "pub struct Held;"), ("two.rs", "pub enum Held {}")]);
        assert_eq!(found, ["`Held` is also the name of a public type in crates/a/src/two.rs"]);
        assert_eq!(complaints(&[("one.rs", "pub struct Held;"), ("two.rs", "struct Held;")]), [""; 0]);
        let kinds = [("one.rs", "pub struct Desired;"), ("two.rs", "pub struct Desired;")];
        assert_eq!(complaints(&kinds), [""; 0]);
    }
}
