//! What can be the matter with a key, one thing at a time, and exactly what is done about it.

use api::Reason;
use engine::secrets::{Held, Policy, Record};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sim::state::ProvisionerKey;
use uuid::Uuid;

use super::{
    disturb::{Disturbance, disturb},
    model::{GRACE, Model, NAMESPACE, Shared, UID, place},
    run::{Process, settle},
    secret::{entries, record_of, set_entry, set_owner, set_record},
};
use crate::memory::start;

/// What a pass wrote, minted, proved and deleted, and how it ended.
pub(super) fn pass(model: &Shared) -> Vec<String> {
    let from = model.lock().unwrap().log.len();
    let mut process = Process::new("", model);
    let driven = process.pass().0.unwrap();
    let model = model.lock().unwrap();
    let is_read =
        |it: &&String| !it.contains(": read") && !it.contains(": list") && !it.starts_with("revoked ");
    let mut done: Vec<String> = model
        .log
        .iter()
        .skip(from)
        .filter(is_read)
        .map(|it| it.trim_start_matches(": ").to_owned())
        .collect();
    done.push(match driven.rest.key {
        Ok(held) if held.is_ours => format!("{} is ours", held.name),
        Ok(held) => format!("{} is not ours", held.name),
        Err(waiting) => waiting.reason.as_str().to_owned(),
    });
    done.extend(driven.rest.concern.map(|it| it.reason.as_str().to_owned()));
    done
}

/// A model with a key, at rest.
pub(super) fn settled(policy: Policy) -> Shared {
    let model = Model::new(policy);
    settle(&model);
    model.lock().unwrap().roll();
    model
}

/// The same after something has happened.
pub(super) fn after(policy: Policy, disturbances: &[Disturbance]) -> Shared {
    let model = settled(policy);
    for disturbance in disturbances {
        disturb(&model, *disturbance);
    }
    model
}

/// A new key, from the intent to the status; the key before goes later.
fn rotation(name: &str, listed: &str, before: &str) -> Vec<String> {
    let current = |it: &str| if it.is_empty() { "None".to_owned() } else { format!("Some({it:?})") };
    let retiring = if before.is_empty() { "[]".to_owned() } else { format!("[{before:?}]") };
    let intent = format!("write - intent Some({name:?}) current {} retiring []", current(before));
    // The first intent is in the status alone, while there is no Secret.
    let intent = (!before.is_empty()).then_some(intent);
    let rest = vec![
        "mirror".to_owned(),
        format!("mint {name}"),
        format!("write value intent None current Some({listed:?}) retiring {retiring}"),
        "mirror".to_owned(),
        format!("{listed} is ours"),
    ];
    intent.into_iter().chain(rest).collect()
}

#[test]
fn the_first_key_has_the_declared_name_and_is_written_down_before_it_is_asked_for() {
    assert_eq!(pass(&Model::new(Policy::Recreate)), rotation("Alpha", "alpha", ""));
    // The object of a key that others use is known by the key's id.
    let mut proved = rotation("Alpha", "alpha", "");
    proved.insert(2, "prove".to_owned());
    assert_eq!(pass(&Model::new(Policy::OnRequest)), proved);
}

#[test]
fn times_are_written_in_whole_seconds_because_a_status_keeps_no_others() {
    let model = Model::new(Policy::Recreate);
    model.lock().unwrap().set_now(start() + SignedDuration::from_millis(1_500));
    pass(&model);
    // A status has no others, so the record is looked at.
    let rotated = model.lock().unwrap().record().unwrap().rotated_at.unwrap();
    assert_eq!(rotated.subsec_nanosecond(), 0);
}

#[test]
fn a_good_key_costs_one_read_in_a_new_process_and_nothing_after() {
    let model = settled(Policy::Recreate);
    let mut process = Process::new("same", &model);
    let calls = model.lock().unwrap().log.len();
    process.pass().0.unwrap();
    let log = model.lock().unwrap().log.split_off(calls);
    assert!(log.iter().any(|it| it == "same: read alpha-provisioner-key"), "{log:?}");
    assert!(!log.iter().any(|it| it.contains("prove")), "{log:?}");
    process.pass().0.unwrap();
    assert_eq!(model.lock().unwrap().log[calls..], [""; 0]);
}

#[test]
fn whatever_is_lost_or_differs_is_replaced_with_overlap() {
    let next = |prove: bool| {
        let mut done = rotation("Alpha-1a2b-2", "alpha-1a2b-2", "alpha");
        if prove {
            done.insert(0, "prove".to_owned());
        }
        done
    };
    for (disturbance, is_proved) in [
        (Disturbance::DeleteKey, true),
        (Disturbance::DeleteSecret, false),
        (Disturbance::EmptySecret, false),
        (Disturbance::SpoilSecret, true),
        (Disturbance::Organization, true),
        // A value goes to no other deployment than its own.
        (Disturbance::Plane, false),
        (Disturbance::Tags, false),
        (Disturbance::Rotate, false),
    ] {
        let model = after(Policy::Recreate, &[disturbance]);
        assert_eq!(pass(&model), next(is_proved), "{disturbance:?}");
    }
}

#[test]
fn another_declared_name_is_given_as_it_is_and_the_old_one_never_again() {
    let model = after(Policy::Recreate, &[Disturbance::Name]);
    let beta = model.lock().unwrap().wanted.names.base.clone();
    assert_eq!(pass(&model), rotation(&beta, &beta, "alpha"));
    settle(&model);
    {
        let mut model = model.lock().unwrap();
        model.wanted.names = super::model::wanted(Policy::Recreate).names;
        model.disturbances += 1;
    }
    settle(&model);
    let model = model.lock().unwrap();
    assert_eq!(model.live().unwrap().key.name, "alpha-1a2b-3");
}

#[test]
fn what_makes_no_difference_mints_nothing() {
    let kept = |write: bool| {
        let write = write.then(|| "write - intent None current Some(\"alpha\") retiring []".to_owned());
        let mut done = Vec::new();
        done.extend(write);
        done.push("mirror".to_owned());
        done.push("alpha is ours".to_owned());
        done
    };
    let status = Disturbance::LoseStatus(0xff);
    for (disturbance, writes) in [
        (status, false),
        (Disturbance::LoseRecord, true),
        (Disturbance::Url, true),
        (Disturbance::Roll, false),
    ] {
        let model = after(Policy::Recreate, &[disturbance]);
        let mut expected = kept(writes);
        if disturbance == Disturbance::Roll {
            expected.retain(|it| it != "mirror");
        }
        assert_eq!(pass(&model), expected, "{disturbance:?}");
        assert_eq!(model.lock().unwrap().minted, 1);
    }
    // `default` and its name are one organization.
    let model = settled(Policy::Recreate);
    model.lock().unwrap().wanted.organization_name = "default".to_owned();
    settle(&model);
    assert_eq!(model.lock().unwrap().minted, 1);
}

#[test]
fn every_single_field_of_the_status_is_filled_again() {
    for bit in 0..8 {
        let model = settled(Policy::Recreate);
        let status = model.lock().unwrap().status();
        disturb(&model, Disturbance::LoseStatus(1 << bit));
        settle(&model);
        let model = model.lock().unwrap();
        assert_eq!((model.minted, model.status()), (1, status), "{bit}");
    }
}

#[test]
fn every_single_field_of_the_record_is_filled_again() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    settle(&model);
    let record = model.lock().unwrap().record().unwrap();
    assert!(record.handled_request.is_some() && record.rotated_at.is_some(), "{record:?}");
    let whole = serde_json::to_value(&record).unwrap();
    let names: Vec<&String> = whole.as_object().unwrap().keys().collect();
    let all = [names.clone()].into_iter().chain(names.iter().map(|it| vec![*it]));
    for lost in all {
        let mut left = whole.clone();
        left.as_object_mut().unwrap().retain(|name, _| !lost.contains(&name));
        let left: Record = serde_json::from_value(left).unwrap();
        model.lock().unwrap().edit_secret(|it| set_record(it, Some(&left)));
        settle(&model);
        let model = model.lock().unwrap();
        let now = model.record().unwrap();
        assert!(now.epoch >= record.epoch, "without {lost:?}");
        let now = Record { epoch: record.epoch, ..now };
        assert_eq!((model.minted, now), (2, record.clone()), "without {lost:?}");
    }
}

#[test]
fn a_renamed_secret_takes_the_value_along_and_the_old_one_goes_after_the_pods() {
    for disturbance in [Disturbance::RenameSecret, Disturbance::RenameEntry] {
        let model = after(Policy::Recreate, &[disturbance]);
        let value = "write value intent None current Some(\"alpha\") retiring []";
        assert_eq!(pass(&model), [value, "prove", "mirror", "alpha is ours"]);
        assert_eq!(pass(&model), ["alpha is ours"], "pods read the old one");
        model.lock().unwrap().roll();
        let done = pass(&model);
        assert!(done[0].starts_with("remove"), "{done:?}");
        let model = model.lock().unwrap();
        let secrets = model.cluster.all("Secret");
        assert_eq!((model.minted, secrets.len()), (1, 1));
        assert_eq!(entries(&secrets[0]).len(), 1);
    }
}

#[test]
fn the_key_before_goes_when_no_pod_carries_it_and_a_daemon_is_on_the_new_one() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&model);
    assert_eq!(
        pass(&model),
        ["mirror", "alpha-1a2b-2 is ours"],
        "the list tells the id, and pods carry the old one"
    );
    assert_eq!(pass(&model), ["alpha-1a2b-2 is ours"], "the pods carry the old one");
    model.lock().unwrap().carried.clear();
    assert_eq!(pass(&model), ["alpha-1a2b-2 is ours"], "nobody has been seen on the new one");
    model.lock().unwrap().roll();
    let end = "write - intent None current Some(\"alpha-1a2b-2\") retiring []";
    assert_eq!(pass(&model), ["delete alpha", end, "mirror", "alpha-1a2b-2 is ours"]);
}

#[test]
fn after_the_grace_period_the_key_before_goes_in_any_case_and_it_is_said_that_nobody_came() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&model);
    let advance = |by: SignedDuration| model.lock().unwrap().advance(by);
    advance(GRACE - SignedDuration::from_secs(1));
    assert_eq!(pass(&model), ["mirror", "alpha-1a2b-2 is ours"], "the list tells the id");
    advance(SignedDuration::from_secs(1));
    let end = "write - intent None current Some(\"alpha-1a2b-2\") retiring []";
    let done = ["delete alpha", end, "mirror", "alpha-1a2b-2 is ours", Reason::DaemonsNotSeen.as_str()];
    assert_eq!(pass(&model), done);
}

#[test]
fn a_key_that_pods_still_get_outlives_its_time_which_begins_when_they_get_the_next_one() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    let advance = |by: SignedDuration| model.lock().unwrap().advance(by);
    let before = model.lock().unwrap().carried.first().cloned();
    model.lock().unwrap().held_up = before;
    pass(&model);
    for _ in 0..2 {
        advance(GRACE);
        let again = "write - intent None current Some(\"alpha-1a2b-2\") retiring [\"alpha\"]";
        let done = [again, "mirror", "alpha-1a2b-2 is ours", Reason::DaemonsNotSeen.as_str()];
        assert_eq!(pass(&model), done);
    }
    model.lock().unwrap().held_up = None;
    advance(GRACE - SignedDuration::from_secs(1));
    assert_eq!(pass(&model), ["alpha-1a2b-2 is ours", Reason::DaemonsNotSeen.as_str()]);
    advance(SignedDuration::from_secs(1));
    assert_eq!(pass(&model)[0], "delete alpha");
}

#[test]
fn without_pods_the_key_before_stays_for_the_overlap() {
    let model = after(Policy::OnRequest, &[Disturbance::Rotate]);
    pass(&model);
    assert_eq!(pass(&model), ["alpha-1a2b-2 is ours"]);
    disturb(&model, Disturbance::Seconds(660));
    assert_eq!(pass(&model)[0], "delete alpha");
}

#[test]
fn the_schedule_rotates_when_it_is_time_and_not_before() {
    let model = settled(Policy::OnRequest);
    {
        let mut model = model.lock().unwrap();
        model.wanted.rotate_every = Some(SignedDuration::from_hours(1));
        model.disturbances += 1;
    }
    let rotated = model.lock().unwrap().status().rotated_at.unwrap();
    let at = |minutes: i64| rotated.checked_add(SignedDuration::from_mins(minutes)).unwrap();
    model.lock().unwrap().set_now(at(59));
    assert_eq!(pass(&model), ["alpha is ours"]);
    model.lock().unwrap().set_now(at(60));
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-2 is ours");
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-2 is ours");
    assert_eq!(model.lock().unwrap().minted, 2);
}

#[test]
fn a_key_that_is_back_and_ours_by_its_name_is_revoked_again() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    settle(&model);
    disturb(&model, Disturbance::Rotate);
    settle(&model);
    disturb(&model, Disturbance::RestoreKey);
    assert_eq!(model.lock().unwrap().ours().count(), 2);
    settle(&model);
    let model = model.lock().unwrap();
    assert_eq!((model.ours().count(), model.minted), (1, 3));
}

#[test]
fn a_key_of_the_same_name_that_somebody_made_is_not_revoked_for_its_name() {
    let model = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&model);
    // Somebody deletes the one that is on its way out, and makes another.
    {
        let mut model = model.lock().unwrap();
        model.lose_keys(|it| it.key.name == "alpha");
        let tags = model.wanted.tags.clone();
        model.foreign("alpha", &tags, false);
    }
    settle(&model);
    assert_eq!(model.lock().unwrap().rows.iter().filter(|it| it.is_foreign).count(), 1);
}

#[test]
fn another_deployment_under_the_same_name_gets_a_key_and_the_old_one_is_left() {
    let model = settled(Policy::Recreate);
    {
        let mut model = model.lock().unwrap();
        model.wanted.place = place("main", 3);
        model.disturbances += 1;
    }
    let done = pass(&model);
    assert_eq!(done.last().unwrap(), "alpha-1a2b-2 is ours");
    assert!(done.contains(&"left alpha".to_owned()), "{done:?}");
    assert!(!done.iter().any(|it| it.starts_with("delete")), "{done:?}");
    let record = model.lock().unwrap().status();
    assert!(record.retiring.is_empty(), "{record:?}");
}

#[test]
fn a_key_that_stays_is_named_also_where_a_person_brought_another_one() {
    let model = settled(Policy::Recreate);
    let value = {
        let mut model = model.lock().unwrap();
        model.wanted.place = place("main", 3);
        model.disturbances += 1;
        let tags = model.wanted.tags.clone();
        model.foreign("somebody", &tags, false).unwrap()
    };
    brought(&model, Some(&value));
    let done = pass(&model);
    assert_eq!(done.last().unwrap(), "somebody is not ours");
    let at = |what: &str| done.iter().position(|it| it == what);
    assert!(at("left alpha").is_some() && at("left alpha") < at("mirror"), "{done:?}");
    assert!(!model.lock().unwrap().status().names_key("alpha", None), "it is forgotten");
}

#[test]
fn a_value_of_somebody_else_is_kept_if_it_would_do_and_replaced_if_not() {
    let model = Model::new(Policy::Recreate);
    let tags = model.lock().unwrap().wanted.tags.clone();
    model.lock().unwrap().foreign("somebody", &tags, false);
    settle(&model);
    disturb(&model, Disturbance::OthersValue);
    assert_eq!(pass(&model).last().unwrap(), "somebody is not ours");
    settle(&model);
    assert_eq!(model.lock().unwrap().ours().count(), 0, "ours has gone");
    disturb(&model, Disturbance::Tags);
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-2 is ours");
}

/// A Secret that a person made, with that value.
pub(super) fn brought(model: &Shared, value: Option<&str>) {
    let mut model = model.lock().unwrap();
    let wanted = model.wanted.secret.clone();
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {},
        "metadata": {"name": wanted.name, "namespace": NAMESPACE}});
    set_entry(&mut secret, &wanted.key, value);
    model.cluster.set(&secret);
    model.newest = None;
}

/// The declared Secret as it is now.
fn stored(model: &Shared) -> Value {
    model.lock().unwrap().secret().unwrap()
}

#[test]
fn a_secret_that_a_person_brought_is_used_or_refused_and_never_written() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        let model = Model::new(policy);
        let other = [("other".to_owned(), String::new())].into();
        let (right, wrong) = {
            let mut model = model.lock().unwrap();
            let tags = model.wanted.tags.clone();
            (model.foreign("right", &tags, false).unwrap(), model.foreign("wrong", &other, false).unwrap())
        };
        for (value, reason) in [
            (None, api::Reason::NotOurs.as_str()),
            (Some("spoilt"), api::Reason::Invalid.as_str()),
            (Some(wrong.as_str()), api::Reason::Invalid.as_str()),
            (Some(right.as_str()), "right is not ours"),
        ] {
            brought(&model, value);
            let before = stored(&model);
            assert_eq!(pass(&model).last().unwrap(), reason);
            assert_eq!(stored(&model), before);
            assert_eq!(model.lock().unwrap().minted, 0);
        }
    }
}

#[test]
fn a_persons_secret_in_place_of_ours_ends_our_key_after_its_time() {
    let model = settled(Policy::Recreate);
    let tags = model.lock().unwrap().wanted.tags.clone();
    let right = model.lock().unwrap().foreign("right", &tags, false);
    brought(&model, right.as_deref());
    assert_eq!(pass(&model).last().unwrap(), "right is not ours");
    assert_eq!(model.lock().unwrap().ours().count(), 1, "pods may carry it");
    model.lock().unwrap().carried.clear();
    disturb(&model, Disturbance::Seconds(660));
    pass(&model);
    let model = model.lock().unwrap();
    assert_eq!((model.ours().count(), model.minted), (0, 1));
    assert!(model.status().retiring.is_empty());
}

#[test]
fn where_copies_are_elsewhere_nothing_is_minted_unasked() {
    for (disturbance, reason) in [
        (Disturbance::DeleteSecret, Reason::SecretMissing.as_str()),
        (Disturbance::EmptySecret, Reason::SecretMissing.as_str()),
        (Disturbance::DeleteKey, Reason::KeyRevoked.as_str()),
        (Disturbance::SpoilSecret, Reason::SecretChanged.as_str()),
        (Disturbance::Tags, api::Reason::DriftFound.as_str()),
        (Disturbance::Name, api::Reason::DriftFound.as_str()),
    ] {
        let model = after(Policy::OnRequest, &[disturbance]);
        assert_eq!(pass(&model).last().unwrap(), reason, "{disturbance:?}");
        let writes = model.lock().unwrap().writes;
        assert_eq!(pass(&model).last().unwrap(), reason, "{disturbance:?}");
        assert_eq!(model.lock().unwrap().writes, writes, "{disturbance:?}");
        assert_eq!(model.lock().unwrap().minted, 1, "{disturbance:?}");
        disturb(&model, Disturbance::Rotate);
        assert!(pass(&model).last().unwrap().ends_with("is ours"), "{disturbance:?}");
        pass(&model);
        assert_eq!(model.lock().unwrap().minted, 2, "{disturbance:?}");
    }
}

#[test]
fn a_name_that_somebody_has_is_said_and_only_a_request_takes_another() {
    let model = Model::new(Policy::OnRequest);
    disturb(&model, Disturbance::ForeignName);
    assert_eq!(pass(&model).last().unwrap(), Reason::NameTaken.as_str());
    assert!(model.lock().unwrap().cluster.all("Secret").is_empty());
    disturb(&model, Disturbance::Rotate);
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-1 is ours");
}

#[test]
fn key_and_secret_gone_together_is_as_if_there_were_none() {
    let model = after(Policy::OnRequest, &[Disturbance::DeleteKey, Disturbance::DeleteSecret]);
    assert_eq!(pass(&model).last().unwrap(), "alpha-1a2b-2 is ours");
}

#[test]
fn a_status_of_coder_k8s_is_enough_to_go_on_with() {
    let model = Model::new(Policy::Recreate);
    let value = {
        let mut model = model.lock().unwrap();
        let tags = model.wanted.tags.clone();
        let value = model.foreign("alpha", &tags, true).unwrap();
        let row = model.rows.first_mut().unwrap();
        row.is_foreign = false;
        let ProvisionerKey { id, organization_id, .. } = row.key.clone();
        let current = Held {
            name: "alpha".to_owned(),
            id: Some(id),
            organization_id: Some(organization_id),
            place: engine::secrets::Place { deployment_id: None, ..place("main", 1) },
            is_ours: true,
            ..Held::default()
        };
        model.set_status(&Record { current: Some(current), ..Record::default() });
        value
    };
    brought(&model, Some(&value));
    model.lock().unwrap().edit_secret(|it| set_owner(it, Some(UID)));
    settle(&model);
    let model = model.lock().unwrap();
    assert_eq!(model.minted, 0);
    let current = model.status().current.unwrap();
    assert!(current.is_ours);
    assert_eq!(current.place.deployment_id, Some(Uuid::from_u128(1)));
}

#[test]
fn a_copy_of_a_secret_is_no_claim_to_its_key() {
    let model = settled(Policy::Recreate);
    {
        let mut model = model.lock().unwrap();
        model.rows.iter_mut().for_each(|it| it.is_foreign = true);
        model.become_object("ffff0000-0000-0000-0000-000000000000");
        model.edit_secret(|it| set_owner(it, None));
    }
    assert_eq!(pass(&model).last().unwrap(), "alpha is not ours");
    super::finish(&model);
    assert_eq!(model.lock().unwrap().rows.len(), 1);
}

#[test]
fn a_key_that_another_object_left_is_shown_to_no_address_but_its_own() {
    let model = settled(Policy::Recreate);
    {
        let mut model = model.lock().unwrap();
        model.become_object("ffff0000-0000-0000-0000-000000000000");
        model.edit_secret(|secret| {
            set_owner(secret, None);
            let mut record = record_of(secret).unwrap();
            record.current.as_mut().unwrap().place.url = "https://coder.test".to_owned();
            set_record(secret, Some(&record));
        });
        // The id of the deployment is the same: anybody may claim it.
        model.wanted.place.url = "https://stranger.test".to_owned();
    }
    let done = pass(&model);
    assert_eq!(done.last().unwrap(), api::Reason::SecretNotAllowed.as_str());
    assert!(!done.contains(&"prove".to_owned()), "{done:?}");
}

#[test]
fn withheld_secret_is_neither_sent_nor_written() {
    let model = Model::new(Policy::Recreate);
    let tags = model.lock().unwrap().wanted.tags.clone();
    let right = model.lock().unwrap().foreign("right", &tags, false);
    brought(&model, right.as_deref());
    model.lock().unwrap().edit_secret(|it| set_owner(it, Some("another")));
    let before = stored(&model);
    let done = pass(&model);
    assert_eq!(done.last().unwrap(), api::Reason::HeldByOther.as_str());
    assert!(!done.contains(&"prove".to_owned()), "{done:?}");
    assert_eq!(stored(&model), before);
    assert_eq!(model.lock().unwrap().minted, 0);
}
