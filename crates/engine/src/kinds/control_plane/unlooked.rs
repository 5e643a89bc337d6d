//! The status of a control plane that was not looked at: a new one, one that is suspended, and one that is being deleted. Pure.

use api::{CoderControlPlane, Reason, condition::OPERATOR_ACCESS};
use serde_json::{Map, Value, json};

use crate::{
    kind::Aside,
    pipeline::{
        conditions::{Fact, Truth},
        outcome::Outcome,
        plan::PlanView,
        status::message,
    },
};

/// What the status says beside what it says of every kind. Everything that was found out before stays.
pub(super) fn unlooked(plane: &CoderControlPlane, outcome: &Outcome) -> Aside {
    let reason = outcome.reason();
    let is_unknown = [Reason::Progressing, Reason::Suspended].contains(&reason);
    let access = Fact {
        condition: OPERATOR_ACCESS,
        truth: if is_unknown { Truth::Unknown } else { Truth::False },
        reason,
        message: message(outcome, &PlanView::empty()),
    };
    let known = plane.status.as_ref();
    let mut status: Map<String, Value> = Map::new();
    if known.and_then(|it| it.phase.as_deref()) != Some("Pending") {
        status.insert("phase".to_owned(), json!("Pending"));
    }
    if known.and_then(|it| it.operator_access_ready) != Some(false) {
        status.insert("operatorAccessReady".to_owned(), json!(false));
    }
    Aside { status, facts: vec![access], ..Aside::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::outcome::Blocked;

    #[test]
    fn access_is_unknown_until_it_was_looked_at_and_nothing_is_written_twice() {
        let plane = |status: Value| -> CoderControlPlane {
            serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
                "metadata": {"name": "main"}, "spec": {}, "status": status}))
            .unwrap()
        };
        let blocked = |reason| Outcome::Blocked(Blocked { reason, message: "why".to_owned() });
        let said = unlooked(&plane(json!({"phase": "Ready"})), &blocked(Reason::Deleting));
        assert_eq!((said.facts[0].truth, said.facts[0].message.as_str()), (Truth::False, "why"));
        assert_eq!(
            Value::Object(said.status.clone()),
            json!({"phase": "Pending", "operatorAccessReady": false})
        );
        for reason in [Reason::Progressing, Reason::Suspended] {
            let again = unlooked(&plane(Value::Object(said.status.clone())), &blocked(reason));
            assert_eq!((again.facts[0].truth, again.status), (Truth::Unknown, Map::new()), "{reason}");
        }
    }
}
