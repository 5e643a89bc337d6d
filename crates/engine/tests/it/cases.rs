//! Plans as data: every file of `tests/cases` is a manifest, a coder, and what the engine makes of the two.
//!
//! A case says what is decided. What follows from that holds for all of them and is checked for each: what is not
//! to be applied writes nothing, and what is applied is equal from then on.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use engine::{Coder, Contact, Decision, Door, Outcome, Refusal, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    memory,
    support::{holding, promises, subject},
    wire::{Fault, Wire, answer},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    manifest: Value,
    /// Manifests that are applied before this one.
    #[serde(default)]
    promised: Vec<Value>,
    #[serde(default)]
    on_the_command_line: bool,
    /// The version of Coder, where it matters.
    version: Option<String>,
    /// Answers by path in place of those of the deployment.
    #[serde(default)]
    answers: BTreeMap<String, (u16, Value)>,
    /// What the deployment has beside an owner and the default organization.
    #[serde(default = "empty")]
    coder: Value,
    expect: Expected,
}

fn empty() -> Value {
    json!({})
}

impl Case {
    fn wire(&self) -> Arc<Wire> {
        let version = self.version.as_deref().unwrap_or("v2.36.1");
        let deployment = memory::coder_of_version(version, memory::described(&self.coder));
        let answers = self.answers.clone();
        Wire::failing(deployment, move |request| {
            let (status, body) = answers.get(request.uri().path())?;
            Some(Fault::Instead(Ok(answer(*status, body))))
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Expected {
    contact: Option<String>,
    decision: Option<String>,
    hash: Option<String>,
    plan: Option<Vec<ExpectedStep>>,
    /// The body of the first write.
    write: Option<Value>,
    waiting: Option<ExpectedWait>,
    invalid: Option<ExpectedMistake>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedStep {
    action: String,
    impact: String,
    changes: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedWait {
    reason: String,
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedMistake {
    field: String,
}

#[tokio::test]
async fn every_case_is_decided_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut names = Vec::new();
    for kind in fs::read_dir(folder).unwrap() {
        for case in fs::read_dir(kind.unwrap().path()).unwrap() {
            names.push(case.unwrap().path());
        }
    }
    names.sort();
    assert!(names.len() >= 30, "{} cases are too few to be all of them", names.len());
    let mut wrong = Vec::new();
    for path in names {
        let case: Case = serde_json::from_slice(&fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(difference) = run(&case).await {
            let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
            wrong.push(format!("{name}: {difference}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn run(case: &Case) -> Result<(), String> {
    let wire = case.wire();
    let coder = Coder::new(wire.client(), promises(&case.promised));
    let door = if case.on_the_command_line { Door::CommandLine } else { Door::Controller };
    let mut subject = subject(&case.manifest);
    let assessment = subject.assess(&coder, door).await;
    let expect = &case.expect;
    let decision = match &assessment.verdict {
        Verdict::Stopped(outcome) => return stopped(expect, outcome, &wire),
        Verdict::Decided(decision) => *decision,
    };
    let steps = expect.plan.iter().flatten();
    let plan: Vec<Value> =
        steps.map(|it| json!({"action": it.action, "impact": it.impact, "changes": it.changes})).collect();
    let found = assessment.plan.steps.iter();
    let found: Vec<Value> =
        found.map(|it| json!({"action": it.action, "impact": it.impact, "changes": it.changes})).collect();
    same("contact", expect.contact.as_deref(), assessment.contact.map(contact))?;
    same("decision", expect.decision.as_deref(), Some(decided(decision)))?;
    same("plan", plan, found)?;
    if let Some(hash) = &expect.hash {
        same("hash", hash, &assessment.plan.hash)?;
    }
    same("writes before anything was carried out", 0, wire.writes().len())?;
    if !case.promised.is_empty() {
        // What was promised is not there yet, so this cannot be carried out.
        return Ok(());
    }
    let report = subject.carry_out(&assessment, &coder).await;
    if decision != Decision::Apply {
        return same("writes", 0, wire.writes().len());
    }
    if let Some(write) = &expect.write {
        same("write", write, &wire.writes()[0].body)?;
    }
    same("outcome", "Applied", &format!("{:?}", report.outcome))?;
    equal_from_now_on(case, &wire, report.id.ok_or("no id to record")?).await
}

fn stopped(expect: &Expected, outcome: &Outcome, wire: &Wire) -> Result<(), String> {
    same("writes", 0, wire.writes().len())?;
    match (outcome, &expect.waiting, &expect.invalid) {
        (Outcome::Blocked(waiting), Some(expected), _) => {
            same("reason", expected.reason.as_str(), waiting.reason.as_str())?;
            same("message", &expected.message, &waiting.message)
        }
        (Outcome::Invalid(invalid), _, Some(expected)) => {
            same("asked", 0, wire.asked().len())?;
            same("field", &expected.field, &invalid.field)
        }
        _ => Err(format!("stopped with {outcome:?}")),
    }
}

async fn equal_from_now_on(case: &Case, wire: &Arc<Wire>, id: uuid::Uuid) -> Result<(), String> {
    let writes = wire.writes().len();
    let coder = wire.coder();
    let mut held = subject(&holding(&case.manifest, id));
    let again = held.assess(&coder, Door::Controller).await;
    same("contact afterwards", Some(Contact::Held), again.contact)?;
    same("plan afterwards", &Vec::new(), &again.plan.steps)?;
    let report = held.carry_out(&again, &coder).await;
    same("outcome afterwards", "Equal", &format!("{:?}", report.outcome))?;
    same("writes afterwards", writes, wire.writes().len())
}

#[expect(clippy::needless_pass_by_value, reason = "what is compared is mostly made on the spot")]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, found: T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}

fn contact(contact: Contact) -> &'static str {
    match contact {
        Contact::Absent => "Absent",
        Contact::Held => "Held",
        Contact::Foreign => "Foreign",
    }
}

fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::Nothing => "Nothing",
        Decision::Apply => "Apply",
        Decision::Observe => "Observe",
        Decision::Refuse(Refusal::NotEqual) => "Refuse(NotEqual)",
        Decision::Refuse(Refusal::NotOurs) => "Refuse(NotOurs)",
        Decision::Refuse(Refusal::NotApproved) => "Refuse(NotApproved)",
        Decision::Refuse(Refusal::Destructive) => "Refuse(Destructive)",
    }
}
