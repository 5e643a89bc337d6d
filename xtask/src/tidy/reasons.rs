//! Every reason of the sources has a row in the table that the reference is made from, and no row is for nothing.

use std::collections::BTreeSet;

use proc_macro2::Span;
use syn::{
    Expr, ExprLit, Item, ItemMod, Lit, LitStr, Member,
    visit::{self, Visit},
};

use super::tree::{Complaint, Tree};

/// Where the product's reasons are.
const SOURCES: [&str; 3] = ["crates/api/src/", "crates/engine/src/", "crates/operator/src/"];
/// Where their rows are.
const TABLE: &str = "crates/api/src/reasons";

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let documented: BTreeSet<&str> =
        api::reasons::REASONS.iter().flat_map(|it| it.reasons).map(|it| it.reason).collect();
    let sources: Vec<(&str, &str)> = tree
        .with_ending(".rs")
        .filter(|(path, _)| SOURCES.iter().any(|it| path.starts_with(it)) && !path.starts_with(TABLE))
        .collect();
    let mut complaints = Vec::new();
    for (path, text) in &sources {
        complaints.extend(undocumented(path, text, &documented));
    }
    let unused = documented.iter().filter(|reason| {
        let literal = format!("\"{reason}\"");
        !sources.iter().any(|(_, text)| text.contains(&literal))
    });
    complaints.extend(unused.map(|reason| {
        let what = format!("has a row for the reason {reason}, which nothing reports: remove the row");
        Complaint::new(&format!("{TABLE}.rs"), 1, what)
    }));
    complaints
}

fn undocumented(path: &str, text: &str, documented: &BTreeSet<&str>) -> Vec<Complaint> {
    if path.ends_with("/tests.rs") {
        return Vec::new();
    }
    // A file that cannot be read is the complaint of another check.
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut reasons = Reasons::default();
    reasons.visit_file(&file);
    let missing = reasons.found.iter().filter(|(reason, _)| !documented.contains(reason.as_str()));
    let complain = |(reason, span): &(String, Span)| {
        let what = format!(
            "the reason {reason} has no row in {TABLE}: add one that says what it means and what to do"
        );
        Complaint::new(path, span.start().line, what)
    };
    missing.map(complain).collect()
}

/// The actions of Events. A tuple of two literals that ends in one of them is a reason with its action.
const ACTIONS: [&str; 5] = ["Announce", "Create", "Delete", "Read", "Update"];

/// Constants of modules called `reason`, match arms of types called `Reason`, literals of fields called `reason`, and the first
/// literals of tuples that are passed to `publish` or hold the action of an Event.
#[derive(Default)]
struct Reasons {
    found: Vec<(String, Span)>,
}

impl Reasons {
    fn add(&mut self, literal: &LitStr) {
        let reason = literal.value();
        let is_reason = reason.starts_with(|it: char| it.is_ascii_uppercase())
            && reason.chars().all(|it| it.is_ascii_alphanumeric());
        if is_reason {
            self.found.push((reason, literal.span()));
        }
    }

    fn add_expression(&mut self, expression: &Expr) {
        if let Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) = expression {
            self.add(literal);
        }
    }
}

impl<'ast> Visit<'ast> for Reasons {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        // Tests make reasons up.
        if module.attrs.iter().any(|it| it.path().is_ident("cfg")) {
            return;
        }
        let items = module.content.iter().flat_map(|(_, items)| items);
        if module.ident == "reason" {
            for item in items {
                if let Item::Const(constant) = item {
                    self.add_expression(&constant.expr);
                }
            }
        }
        visit::visit_item_mod(self, module);
    }

    fn visit_item_impl(&mut self, implementation: &'ast syn::ItemImpl) {
        let name = match &*implementation.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|it| it.ident.to_string()),
            _ => None,
        };
        if name.as_deref() == Some("Reason") {
            let mut arms = Arms { reasons: self };
            arms.visit_item_impl(implementation);
        } else {
            visit::visit_item_impl(self, implementation);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let is_publish = matches!(&*call.func, Expr::Path(path)
            if path.path.segments.last().is_some_and(|it| it.ident == "publish"));
        for argument in call.args.iter().filter(|_| is_publish) {
            if let Expr::Tuple(words) = argument
                && let Some(reason) = words.elems.first()
            {
                self.add_expression(reason);
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        let mut parts = tuple.elems.iter();
        if let (Some(reason), Some(Expr::Lit(ExprLit { lit: Lit::Str(action), .. }))) =
            (parts.next(), parts.next())
            && ACTIONS.contains(&action.value().as_str())
        {
            self.add_expression(reason);
        }
        visit::visit_expr_tuple(self, tuple);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if matches!(&field.member, Member::Named(name) if name == "reason") {
            self.add_expression(&field.expr);
        }
        visit::visit_field_value(self, field);
    }
}

/// The literals that the arms of a match end in.
struct Arms<'a> {
    reasons: &'a mut Reasons,
}

impl<'ast> Visit<'ast> for Arms<'_> {
    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.reasons.add_expression(&arm.body);
        visit::visit_arm(self, arm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
pub mod reason {
    pub const UP_TO_DATE: &str = "UpToDate";
    pub const NEW: &str = "BrandNew";
}
impl Reason {
    fn as_str(self) -> &'static str {
        match self { Self::Other => "OtherNew" }
    }
}
fn verdict() -> Verdict { Verdict { reason: "FieldNew", message: "Not a reason" } }
#[cfg(test)]
mod tests { fn made_up() -> Verdict { Verdict { reason: "OnlyInATest" } } }
"#;

    #[test]
    fn reason_without_a_row_is_named_with_its_line() {
        let found = undocumented("crates/engine/src/a.rs", SOURCE, &["UpToDate"].into());
        let lines: Vec<usize> = found.iter().map(|it| it.line).collect();
        assert_eq!(lines, [4, 8, 11]);
        assert!(found.iter().all(|it| it.what.contains("says what it means and what to do")), "{found:?}");
    }

    #[test]
    fn reason_with_a_row_is_fine() {
        let all = ["UpToDate", "BrandNew", "OtherNew", "FieldNew"].into();
        assert_eq!(undocumented("crates/engine/src/a.rs", SOURCE, &all), []);
    }

    #[test]
    fn reason_of_an_event_is_found_in_its_tuple() {
        let source = r#"
async fn tell(plane: &Plane, done: Done) {
    publish(plane, EventType::Warning, ("GoneNew", "Vanish"), &note, shared).await;
    let words = match done {
        Done::Uploaded => ("InstalledNew", "Create"),
        Done::Deleted => ("UpToDate", "Delete"),
    };
    let pair = ("Secret", "Deployment");
}
"#;
        let found = undocumented("crates/operator/src/a.rs", source, &["UpToDate"].into());
        let lines: BTreeSet<usize> = found.iter().map(|it| it.line).collect();
        assert_eq!(lines, [3, 5].into(), "{found:?}");
    }
}
