//! `status`: every object of ours in a cluster, and how it is.

use anyhow::Context as _;
use api::condition;
use jiff::Timestamp;
use kube::{ResourceExt as _, api::DynamicObject};
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::{Output, StatusArgs},
    cli::{
        exit::{Exit, Failure},
        objects::{Objects, Scope},
        render::fenced,
        terminal::{print, printable, say},
    },
};

/// How much of a message the table shows.
const SHOWN: usize = 72;

/// One object. The JSON form only grows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kind: String,
    namespace: String,
    name: String,
    /// The status of the condition `Ready`; `Unknown` before the first reconcile, and for a status of an older generation.
    ready: String,
    reason: String,
    message: String,
    /// When `ready` became what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The status of the condition `Drifted`.
    drifted: String,
    /// The fields that differ.
    #[serde(skip_serializing_if = "Value::is_null")]
    drift: Value,
    /// The plan that is pending, observed or refused.
    #[serde(skip_serializing_if = "Value::is_null")]
    plan: Value,
}

pub(super) async fn status(args: &StatusArgs, quiet: bool) -> Result<Exit, Failure> {
    let scope = if args.all_namespaces { Scope::All } else { Scope::One(args.namespace.clone()) };
    let objects = Objects::connect().await?.list(&scope).await?;
    let mut rows: Vec<Row> = objects.iter().map(row).collect();
    rows.sort_by(|one, two| {
        (&one.namespace, &one.kind, &one.name).cmp(&(&two.namespace, &two.kind, &two.name))
    });
    let text = match args.output {
        Output::Text => table(&rows, Timestamp::now()),
        Output::Markdown => format!("{}\n{}", summary(&rows), fenced(&table(&rows, Timestamp::now()))),
        Output::Json => serde_json::to_string_pretty(&rows).map(|it| it + "\n").context("write JSON")?,
        Output::Yaml => serde_saphyr::to_string(&rows).context("write YAML")?,
    };
    print(&text).context("write the table")?;
    if !quiet && args.output == Output::Text {
        say(&summary(&rows));
    }
    Ok(Exit::Success)
}

fn row(object: &DynamicObject) -> Row {
    let status = &object.data["status"];
    let is_current =
        object.metadata.generation.is_none_or(|it| status["observedGeneration"].as_i64() >= Some(it));
    let condition = |kind: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().find(|it| it["type"] == kind).cloned().unwrap_or_default()
    };
    let text = |value: &Value, otherwise: &str| value.as_str().unwrap_or(otherwise).to_owned();
    let (ready, drifted) = (condition(condition::READY), condition(condition::DRIFTED));
    let is_deleted = object.metadata.deletion_timestamp.is_some();
    let message = if is_current {
        text(&ready["message"], "not reconciled yet")
    } else {
        "this generation is not reconciled yet".to_owned()
    };
    Row {
        kind: object.types.as_ref().map(|it| it.kind.clone()).unwrap_or_default(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        ready: if is_current { text(&ready["status"], "Unknown") } else { "Unknown".to_owned() },
        reason: if is_deleted { "Deleting".to_owned() } else { text(&ready["reason"], "") },
        message,
        since: ready["lastTransitionTime"].as_str().map(str::to_owned),
        drifted: text(&drifted["status"], "Unknown"),
        drift: status["drift"].clone(),
        plan: status["plan"].clone(),
    }
}

fn summary(rows: &[Row]) -> String {
    let count = |is: &dyn Fn(&&Row) -> bool| rows.iter().filter(is).count();
    let (ready, drifted) = (count(&|it| it.ready == "True"), count(&|it| it.drifted == "True"));
    let approvals = count(&|it| it.reason == "ApprovalRequired" || it.reason == "DestructiveRefused");
    format!("{} objects: {ready} ready, {drifted} with drift, {approvals} to approve", rows.len())
}

/// The rows with columns of equal width. Texts of others cannot steer the terminal.
fn table(rows: &[Row], now: Timestamp) -> String {
    let head = ["NAMESPACE", "OBJECT", "READY", "SINCE", "DRIFT", "REASON", "MESSAGE"].map(str::to_owned);
    let lines: Vec<[String; 7]> = rows.iter().map(|it| line(it, now)).collect();
    let widths: Vec<usize> = (0..7)
        .map(|column| {
            let cells = lines.iter().chain([&head]).map(|it| it[column].chars().count());
            cells.max().unwrap_or_default()
        })
        .collect();
    let mut text = String::new();
    for cells in [&head].into_iter().chain(&lines) {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn line(row: &Row, now: Timestamp) -> [String; 7] {
    let since = row.since.as_ref().and_then(|it| it.parse::<Timestamp>().ok());
    let mut message = printable(&row.message).replace('\n', " ");
    if message.chars().count() > SHOWN {
        message = message.chars().take(SHOWN - 1).chain(['…']).collect();
    }
    let fields: Vec<String> = row.drift.as_array().into_iter().flatten().filter_map(drifted_field).collect();
    let drift = match row.drifted.as_str() {
        "True" if !fields.is_empty() => fields.join(","),
        "True" => "yes".to_owned(),
        "False" => "no".to_owned(),
        _ => "unknown".to_owned(),
    };
    [
        row.namespace.clone(),
        format!("{}/{}", row.kind.to_lowercase(), row.name),
        row.ready.clone(),
        since.map(|it| age(now.duration_since(it).as_secs())).unwrap_or_default(),
        printable(&drift),
        row.reason.clone(),
        message,
    ]
}

/// A field that differs, and who changed it.
fn drifted_field(difference: &Value) -> Option<String> {
    let field = difference["field"].as_str()?;
    Some(match difference["changedBy"].as_str() {
        Some(by) => format!("{field} by {by}"),
        None => field.to_owned(),
    })
}

/// A time span as kubectl shows it: in its largest unit.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        it @ 0..120 => format!("{it}s"),
        it @ 120..7200 => format!("{}m", it / 60),
        it @ 7200..172_800 => format!("{}h", it / 3600),
        it => format!("{}d", it / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(observed: i64, conditions: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "coder.com/v1alpha1",
            "kind": "CoderGroup",
            "metadata": {"name": "developers", "namespace": "coder", "generation": 2},
            "spec": {},
            "status": {"observedGeneration": observed, "conditions": conditions, "drift": [{"field": "quotaAllowance", "expected": "20", "found": "3", "changedBy": "alice"}]},
        }))
        .unwrap()
    }

    fn ready() -> Value {
        json!([
            {"type": "Ready", "status": "True", "reason": "UpToDate", "message": "as declared", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Drifted", "status": "True", "reason": "DriftFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ])
    }

    #[test]
    fn table_shows_readiness_age_drift_and_reason() {
        let rows = [row(&object(2, &ready()))];
        let text = table(&rows, "2026-01-01T03:00:00Z".parse().unwrap());
        let expected = "\
NAMESPACE  OBJECT                 READY  SINCE  DRIFT                    REASON    MESSAGE
coder      codergroup/developers  True   3h     quotaAllowance by alice  UpToDate  as declared
";
        assert_eq!(text, expected);
        assert_eq!(summary(&rows), "1 objects: 1 ready, 1 with drift, 0 to approve");
    }

    #[test]
    fn status_of_an_older_generation_is_unknown() {
        let old = row(&object(1, &ready()));
        assert_eq!(
            (old.ready.as_str(), old.message.as_str()),
            ("Unknown", "this generation is not reconciled yet")
        );
        let none = row(&object(2, &json!([])));
        assert_eq!((none.ready.as_str(), none.message.as_str()), ("Unknown", "not reconciled yet"));
    }

    #[test]
    fn age_is_shown_in_its_largest_unit() {
        for (seconds, text) in [(-5, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")] {
            assert_eq!(age(seconds), text);
        }
    }
}
