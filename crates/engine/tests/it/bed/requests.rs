//! What a pass costs: one list serves every object that looks into it.

use engine::{Decision, Door, Verdict};
use reqwest::Method;
use serde_json::{Value, json};

use super::deployment::{Deployment, licensed};
use crate::{examples::request, support::subject};

fn group(number: usize) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": format!("group-{number}")},
        "spec": {"controlPlaneRef": {"name": "main"}, "quotaAllowance": number, "members": []}})
}

/// The requests of one pass over that many groups that are as declared.
async fn requests(count: usize, deployment: &Deployment) -> Vec<String> {
    deployment.asked();
    let coder = deployment.coder();
    for number in 0..count {
        let mut subject = subject(&group(number));
        let assessment = subject.assess(&coder, Door::Controller).await;
        assert!(
            matches!(assessment.verdict, Verdict::Decided(Decision::Nothing)),
            "{:?}",
            assessment.verdict
        );
        subject.carry_out(&assessment, &coder).await;
    }
    deployment.asked()
}

#[tokio::test]
async fn twice_as_many_groups_cost_the_same_number_of_requests() {
    let (coderd, deployment) = licensed().await;
    let organizations = request(&coderd.owner, Method::GET, "/api/v2/organizations", None).await;
    let path = format!("/api/v2/organizations/{}/groups", organizations[0]["id"].as_str().unwrap());
    let mut made = 0;
    let mut costs = Vec::new();
    for count in [1, 50, 100, 200] {
        while made < count {
            let body = json!({"name": format!("group-{made}"), "quota_allowance": made});
            request(&coderd.owner, Method::POST, &path, Some(&body)).await;
            made += 1;
        }
        let asked = requests(count, &deployment).await;
        eprintln!("one converged pass over {count} groups: {} requests: {asked:?}", asked.len());
        assert!(asked.iter().all(|it| it.starts_with("GET ")), "{asked:?}");
        costs.push(asked.len());
    }
    assert!(costs.iter().all(|it| *it == costs[0]), "{costs:?}");
}
