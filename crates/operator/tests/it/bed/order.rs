//! Things that come in any order, twice, or wrong.

use api::{CoderControlPlane, CoderGroup};
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    get, licensed,
    operator::{Operator, writes},
    proxy::Proxy,
    stage::{Stage, group, group_named, is_held_up, is_ready, plane, words},
};

#[tokio::test]
async fn a_token_that_comes_late_is_noticed_when_it_comes() {
    let stage = Stage::bare(licensed().await).await;
    let mut slow = plane("main", &stage.coderd.owner.url);
    // By the clock it would take longer than this test waits.
    slow["spec"]["interval"] = json!("1h");
    stage.apply(&slow).await;
    stage.apply(&group(&json!({"interval": "1h"}))).await;
    let missing = is_held_up("SecretNotFound");
    let told = stage.wait::<CoderControlPlane>("main", "without a token", &missing).await;
    assert!(words(&told).contains("coder-automation"), "{told}");
    stage.wait::<CoderGroup>("developers", "waiting", is_held_up("ControlPlaneNotReady")).await;
    stage.write_secret("coder-automation", &json!({"another": "value"})).await;
    stage.write_token(&stage.coderd.owner.token).await;
    stage.is_noticed("CoderGroup", "developers", "ready", is_ready).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
}

/// Waits until an operator has looked at each of so many groups that are as declared.
async fn look_at_all(operator: &Operator, groups: usize) {
    let passes = |text: &str| {
        let counts = "coder_operator_reconciles_total{kind=\"CoderGroup\",reason=\"UpToDate\"} ";
        let count = text.lines().find_map(|it| it.strip_prefix(counts));
        count.map_or(0, |it| it.parse::<usize>().unwrap())
    };
    let before = passes(&operator.get("/metrics").await.unwrap().1);
    // All of them have much the same interval: after two rounds every one had its turn.
    operator.shows("looked at", |text| passes(text) >= before + 2 * groups).await;
}

#[tokio::test]
async fn two_operators_without_an_election_come_to_the_same_end_and_do_not_quarrel() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let second = Operator::start(&stage.namespace, &[]);
    let names = ["a", "b", "c", "d"];
    for name in names {
        stage.apply(&group_named(name, &json!({"quotaAllowance": 1, "deletionPolicy": "Delete"}))).await;
    }
    for name in names {
        stage.wait::<CoderGroup>(name, "ready", is_ready).await;
    }
    let found = get(&stage.coderd, "/api/v2/organizations/default/groups").await;
    let found: Vec<&str> = found.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(found.len(), names.len() + 1, "one of each, and Everyone: {found:?}");
    // Both have looked at everything once more, and what they had still to write is written.
    let both =
        async || tokio::join!(look_at_all(&stage.operator, names.len()), look_at_all(&second, names.len()));
    both().await;
    let (coder, kubernetes) = (proxy.writes(), writes(&stage.namespace).await.len());
    both().await;
    assert_eq!(proxy.writes(), coder);
    let written = writes(&stage.namespace).await;
    assert_eq!(written.len(), kubernetes, "{:#?}", written.last());
    for name in names {
        let made = stage.wait::<CoderGroup>(name, "ready", is_ready).await;
        stage.delete("CoderGroup", name).await;
        stage.gone(&made).await;
    }
    let left = get(&stage.coderd, "/api/v2/organizations/default/groups").await;
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    drop(second);
}

#[tokio::test]
async fn an_operator_that_died_in_the_middle_goes_on_where_it_was() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let mut stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({"quotaAllowance": 1}))).await;
    let made = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    // An Event comes after the status that it belongs to; when the next pass is over, it has been sent.
    stage.look_again("CoderGroup", "developers").await;
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    let (coder, kubernetes) = (proxy.writes(), writes(&stage.namespace).await.len());
    stage.operator = Operator::start(&stage.namespace, &[]);
    stage.look_again("CoderGroup", "developers").await;
    assert_eq!(proxy.writes(), coder, "what is as declared is not written again");
    assert!(writes(&stage.namespace).await.len() <= kubernetes + 1, "but for the request that was handled");
    stage.apply(&group(&json!({"quotaAllowance": 2}))).await;
    let after = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    assert_eq!(after["status"]["id"], made["status"]["id"]);
}

#[tokio::test]
async fn a_mapping_with_a_name_that_means_nothing_is_told_with_its_claim_and_not_written() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let sync = |kind: &str, mapping: Value| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": "sync"},
            "spec": {"controlPlaneRef": {"name": "main"}, "field": "groups", "interval": "1h", "mapping": mapping}})
    };
    let cases = [
        ("CoderGroupSync", "Everyone", "group ghost"),
        ("CoderRoleSync", "organization-admin", "role ghost"),
        ("CoderOrganizationSync", "default", "organization ghost"),
    ];
    for (kind, known, missing) in cases {
        stage.apply(&sync(kind, json!({"/known": [known], "/claim": [known, "ghost"]}))).await;
        let told = stage.wait_for(kind, "sync", "told", is_held_up("ReferenceNotFound")).await;
        assert!(
            words(&told).contains("/claim") && words(&told).contains(missing),
            "{kind}: {}",
            words(&told)
        );
        assert_eq!(told["status"]["id"], Value::Null, "{kind}");
    }
    assert_eq!(proxy.writes(), Vec::<String>::new());
    // Once it means something, it is written, and not by the clock.
    stage.apply(&group_named("ghost", &json!({}))).await;
    stage.is_noticed("CoderGroupSync", "sync", "ready", is_ready).await;
    let organization = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization",
        "metadata": {"name": "ghost"}, "spec": {"controlPlaneRef": {"name": "main"}}});
    stage.apply(&organization).await;
    stage.is_noticed("CoderOrganizationSync", "sync", "ready", is_ready).await;
}

#[tokio::test]
async fn a_name_that_coder_would_refuse_is_refused_before_anybody_is_asked() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let asked = || proxy.requests().into_iter().filter(|it| it.path.contains("/organizations")).count();
    for (kind, name) in
        [("CoderGroup", "no spaces"), ("CoderOrganization", "-dash"), ("CoderOrganization", "new")]
    {
        let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": "wrong"},
            "spec": {"controlPlaneRef": {"name": "main"}, "name": name}});
        let applied = stage
            .kind(kind)
            .patch("wrong", &PatchParams::apply("test").force(), &Patch::Apply(&manifest))
            .await;
        if let Err(refused) = applied {
            assert!(refused.to_string().contains("spec.name"), "{kind} {name}: {refused}");
            continue;
        }
        let told = stage.wait_for(kind, "wrong", "invalid", is_held_up("Invalid")).await;
        assert!(words(&told).contains("name"), "{kind} {name}: {}", words(&told));
    }
    assert_eq!(asked(), 0);
}

#[tokio::test]
async fn the_newer_of_two_manifests_for_one_object_takes_it_when_the_older_is_gone() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({"quotaAllowance": 1}))).await;
    let holder = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let mut second = group(&json!({"quotaAllowance": 1}));
    second["metadata"]["name"] = json!("pretender");
    stage.apply(&second).await;
    stage.wait::<CoderGroup>("pretender", "told", is_held_up("HeldByOther")).await;
    let before = proxy.writes();
    stage.delete("CoderGroup", "developers").await;
    stage.gone(&holder).await;
    let taken = stage.wait::<CoderGroup>("pretender", "the holder", is_ready).await;
    assert_eq!(taken["status"]["id"], holder["status"]["id"]);
    assert_eq!(proxy.writes(), before, "it was equal");
    assert_eq!(before.iter().filter(|it| it.starts_with(Method::POST.as_str())).count(), 1);
}

#[tokio::test]
async fn the_first_contact_is_decided_by_what_is_there_now() {
    let stage = Stage::new(licensed().await).await;
    let mut manifest = group(&json!({"quotaAllowance": 5, "interval": "1h"}));
    stage.apply(&manifest).await;
    let made = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    stage.delete("CoderGroup", "developers").await;
    stage.gone(&made).await;
    // Looked at a moment ago, and equal then.
    manifest["spec"]["adoptionPolicy"] = json!("Never");
    stage.apply(&manifest).await;
    stage.wait::<CoderGroup>("developers", "refused", is_held_up("AdoptionRefused")).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    let by_hand = json!({"name": "", "quota_allowance": 9});
    crate::examples::request(&stage.coderd.owner, Method::PATCH, &path, Some(&by_hand)).await;
    manifest["spec"]["adoptionPolicy"] = json!("IfEqual");
    stage.apply(&manifest).await;
    let seen = stage
        .wait::<CoderGroup>("developers", "decided", |it| is_ready(it) || is_held_up("AdoptionRefused")(it))
        .await;
    assert_eq!(
        words(&seen),
        "it exists and differs: make the manifest equal to it, or set adoptionPolicy to Adopt to take it over"
    );
    assert_eq!(seen["status"]["id"], Value::Null);
}
