//! Every route of the client and every method of the port `Cluster` has a case of a conformance suite.

use std::collections::BTreeSet;

use client::routes::ROUTES;

use super::tree::{Complaint, Tree};

/// Lists every route of the client with the case that covers it; a test of `sim` checks that the case does.
const ROUTE_LIST: &str = "crates/sim/tests/it/covered.rs";
/// Lists the cases of the suite for routes.
const ROUTE_CASES: &str = "crates/sim/tests/it/cases.rs";
/// Declares the port.
const PORT: &str = "crates/engine/src/ports.rs";
/// Lists the cases of the suite for the port, each with the methods that it compares.
const PORT_CASES: &str = "crates/operator/src/cluster/conformance.rs";

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let text = |path: &str| tree.text(path).map(String::as_str).unwrap_or_default();
    let routes: Vec<String> = ROUTES.iter().map(|it| format!("{} {}", it.method(), it.path())).collect();
    let mut complaints = of_routes(&routes, text(ROUTE_LIST), text(ROUTE_CASES));
    complaints.extend(of_methods(text(PORT), text(PORT_CASES)));
    complaints
}

/// Compares the list of routes with the client's, and the cases that it names with those of the suite.
fn of_routes(routes: &[String], list: &str, cases: &str) -> Vec<Complaint> {
    let listed: Vec<&str> = between(list, "COVERED", "];").map(texts).unwrap_or_default();
    let rows: Vec<(&str, &str)> = listed.chunks_exact(2).map(|it| (it[0], it[1])).collect();
    let cases: BTreeSet<&str> = between(cases, "= cases! {", "};").map(names).unwrap_or_default();
    let line = |text: &str| list.lines().position(|it| it.contains(text)).map_or(1, |it| it + 1);
    let missing = routes.iter().filter(|route| rows.iter().all(|(listed, _)| listed != route));
    let missing = missing.map(|route| {
        let what = format!(
            "no conformance case covers {route}: add a case to crates/sim/tests/it/cases and list it here"
        );
        Complaint::new(ROUTE_LIST, 1, what)
    });
    let unknown = rows.iter().filter(|(route, _)| !routes.iter().any(|it| it == route));
    let unknown = unknown.map(|(route, _)| {
        Complaint::new(ROUTE_LIST, line(route), format!("the client has no route {route}"))
    });
    let without = rows.iter().filter(|(_, case)| !cases.contains(case)).map(|(route, case)| {
        Complaint::new(ROUTE_LIST, line(route), format!("the suite has no case {case}, which covers {route}"))
    });
    missing.chain(unknown).chain(without).collect()
}

/// Compares the methods of the port with those that cases name.
fn of_methods(port: &str, suite: &str) -> Vec<Complaint> {
    let methods: Vec<&str> = between(port, "pub trait Cluster", "\n}").map(methods).unwrap_or_default();
    let compared: BTreeSet<&str> =
        between(suite, "const CASES", "\n];").map(texts).unwrap_or_default().into_iter().collect();
    let missing = methods.iter().filter(|it| !compared.contains(*it));
    let mut complaints: Vec<Complaint> = missing
        .map(|it| {
            Complaint::new(PORT_CASES, 1, format!("no case compares the method {it} of the port: add one"))
        })
        .collect();
    if methods.is_empty() {
        complaints.push(Complaint::new(PORT, 1, "the methods of the port `Cluster` are not found"));
    }
    complaints
}

/// The text after the first occurrence of `begin` and before the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(found, _)| found)
}

/// The texts in quotes.
fn texts(source: &str) -> Vec<&str> {
    source.split('"').skip(1).step_by(2).collect()
}

/// The names of cases, as `area::name`.
fn names(source: &str) -> BTreeSet<&str> {
    source.split(';').map(str::trim).filter(|it| !it.is_empty()).collect()
}

/// The methods that a trait declares.
fn methods(source: &str) -> Vec<&str> {
    let declared = source.lines().filter_map(|it| it.strip_prefix("    fn "));
    declared.filter_map(|it| it.split(['<', '(']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: &str =
        "pub(crate) const CASES: &[Case] = cases! {\n    groups::names;\n    users::all;\n};\n";

    fn whats(complaints: &[Complaint]) -> Vec<&str> {
        complaints.iter().map(|it| it.what.as_str()).collect()
    }

    #[test]
    fn route_without_a_case_is_found() {
        let routes = ["GET /groups".to_owned(), "POST /groups".to_owned()];
        let list = "const COVERED: &[(&str, &str)] = &[\n    (\"GET /groups\", \"groups::names\"),\n];\n";
        let found = of_routes(&routes, list, CASES);
        assert!(whats(&found)[0].starts_with("no conformance case covers POST /groups"), "{found:?}");
        assert_eq!(found.len(), 1);
        assert_eq!(of_routes(&routes[..1], list, CASES), []);
    }

    #[test]
    fn listed_route_and_case_that_do_not_exist_are_found() {
        let list = "const COVERED: X = &[\n    (\n        \"GET /groups\",\n        \"groups::gone\",\n    ),\n    \
                    (\"GET /old\", \"users::all\"),\n];\n";
        let found = of_routes(&["GET /groups".to_owned()], list, CASES);
        let lines: Vec<usize> = found.iter().map(|it| it.line).collect();
        assert_eq!(
            whats(&found),
            [
                "the client has no route GET /old",
                "the suite has no case groups::gone, which covers GET /groups"
            ]
        );
        assert_eq!(lines, [6, 3]);
    }

    #[test]
    fn method_without_a_case_is_found() {
        let port = "pub trait Cluster: Debug {\n    fn now(&self) -> T;\n\n    /// Words.\n    fn get<'a>(&'a self);\n\
                    \n    fn list(&self) {\n        self.other();\n    }\n}\nfn other() {}\n";
        let suite = "const CASES: &[X] = &[\n    (&[\"now\", \"list\"], |it| it.around()),\n];\n\"get\"";
        assert_eq!(whats(&of_methods(port, suite)), ["no case compares the method get of the port: add one"]);
        assert!(!of_methods("", suite).is_empty());
    }
}
