//! What can be the matter with a key, one thing at a time, and exactly what is done about it.

use api::Reason;
use engine::Blocked;
use engine::secrets::{Held, LiveKey, Owner, Policy, Record};
use jiff::SignedDuration;
use uuid::Uuid;

use super::{
    disturb::{Disturbance, disturb},
    model::{Coder, GRACE, Shared, Stored, place},
    run::{Process, settle},
};

/// What a pass wrote, minted, proved and deleted, and how it ended.
pub(super) fn pass(coder: &Shared) -> Vec<String> {
    let from = coder.lock().unwrap().log.len();
    let mut process = Process::new("", coder);
    let driven = process.pass().0.unwrap();
    let coder = coder.lock().unwrap();
    let is_read =
        |it: &&String| !it.contains(": read") && !it.contains(": list") && !it.starts_with("revoked ");
    let mut done: Vec<String> = coder
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

/// A coder with a key, at rest.
pub(super) fn settled(policy: Policy) -> Shared {
    let coder = Coder::new(policy);
    settle(&coder);
    coder.lock().unwrap().roll();
    coder
}

/// The same after something has happened.
pub(super) fn after(policy: Policy, disturbances: &[Disturbance]) -> Shared {
    let coder = settled(policy);
    for disturbance in disturbances {
        disturb(&coder, *disturbance);
    }
    coder
}

/// A new key, from the intent to the status; the key before goes later.
fn rotation(name: &str, listed: &str, before: &str) -> Vec<String> {
    let current = |it: &str| if it.is_empty() { "None".to_owned() } else { format!("Some({it:?})") };
    let retiring = if before.is_empty() { "[]".to_owned() } else { format!("[{before:?}]") };
    vec![
        format!("write - intent Some({name:?}) current {} retiring []", current(before)),
        "mirror".to_owned(),
        format!("mint {name}"),
        "prove".to_owned(),
        format!("write value intent None current Some({listed:?}) retiring {retiring}"),
        "mirror".to_owned(),
        format!("{listed} is ours"),
    ]
}

#[test]
fn the_first_key_has_the_declared_name_and_is_written_down_before_it_is_asked_for() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        assert_eq!(pass(&Coder::new(policy)), rotation("Alpha", "alpha", ""));
    }
}

#[test]
fn times_are_written_in_whole_seconds_because_a_status_keeps_no_others() {
    let coder = Coder::new(Policy::Recreate);
    let later = SignedDuration::from_millis(1_500);
    coder.lock().unwrap().now = super::model::start().checked_add(later).unwrap();
    pass(&coder);
    let rotated = coder.lock().unwrap().status.rotated_at.unwrap();
    assert_eq!(rotated.subsec_nanosecond(), 0);
}

#[test]
fn a_good_key_costs_one_read_in_a_new_process_and_nothing_after() {
    let coder = settled(Policy::Recreate);
    let mut process = Process::new("same", &coder);
    let calls = coder.lock().unwrap().log.len();
    process.pass().0.unwrap();
    let log = coder.lock().unwrap().log.split_off(calls);
    assert!(log.iter().any(|it| it == "same: read alpha-provisioner-key"), "{log:?}");
    assert!(!log.iter().any(|it| it.contains("prove")), "{log:?}");
    process.pass().0.unwrap();
    assert_eq!(coder.lock().unwrap().log[calls..], [""; 0]);
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
        let coder = after(Policy::Recreate, &[disturbance]);
        assert_eq!(pass(&coder), next(is_proved), "{disturbance:?}");
    }
}

#[test]
fn another_declared_name_is_given_as_it_is_and_the_old_one_never_again() {
    let coder = after(Policy::Recreate, &[Disturbance::Name]);
    let beta = coder.lock().unwrap().wanted.names.base.clone();
    assert_eq!(pass(&coder), rotation(&beta, &beta, "alpha"));
    settle(&coder);
    {
        let mut coder = coder.lock().unwrap();
        coder.wanted.names = super::model::wanted(Policy::Recreate).names;
        coder.disturbances += 1;
    }
    settle(&coder);
    let coder = coder.lock().unwrap();
    assert_eq!(coder.live().unwrap().key.name, "alpha-1a2b-3");
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
        let coder = after(Policy::Recreate, &[disturbance]);
        let mut expected = kept(writes);
        if disturbance == Disturbance::Roll {
            expected.retain(|it| it != "mirror");
        }
        assert_eq!(pass(&coder), expected, "{disturbance:?}");
        assert_eq!(coder.lock().unwrap().minted, 1);
    }
    // `default` and its name are one organization.
    let coder = settled(Policy::Recreate);
    coder.lock().unwrap().wanted.organization_name = "default".to_owned();
    settle(&coder);
    assert_eq!(coder.lock().unwrap().minted, 1);
}

#[test]
fn every_single_field_of_the_status_is_filled_again() {
    for bit in 0..8 {
        let coder = settled(Policy::Recreate);
        let status = coder.lock().unwrap().status.clone();
        disturb(&coder, Disturbance::LoseStatus(1 << bit));
        settle(&coder);
        let coder = coder.lock().unwrap();
        assert_eq!((coder.minted, &coder.status), (1, &status), "{bit}");
    }
}

#[test]
fn every_single_field_of_the_record_is_filled_again() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    settle(&coder);
    let record = coder.lock().unwrap().record().unwrap().clone();
    assert!(record.handled_request.is_some() && record.rotated_at.is_some(), "{record:?}");
    let whole = serde_json::to_value(&record).unwrap();
    let names: Vec<&String> = whole.as_object().unwrap().keys().collect();
    let all = [names.clone()].into_iter().chain(names.iter().map(|it| vec![*it]));
    for lost in all {
        let mut left = whole.clone();
        left.as_object_mut().unwrap().retain(|name, _| !lost.contains(&name));
        {
            let mut coder = coder.lock().unwrap();
            let secret = coder.secrets.values_mut().next().unwrap();
            secret.record = Some(serde_json::from_value(left).unwrap());
            secret.version += 1;
        }
        settle(&coder);
        let coder = coder.lock().unwrap();
        let now = coder.record().unwrap();
        assert!(now.epoch >= record.epoch, "without {lost:?}");
        let now = Record { epoch: record.epoch, ..now.clone() };
        assert_eq!((coder.minted, now), (2, record.clone()), "without {lost:?}");
    }
}

#[test]
fn a_renamed_secret_takes_the_value_along_and_the_old_one_goes_after_the_pods() {
    for disturbance in [Disturbance::RenameSecret, Disturbance::RenameEntry] {
        let coder = after(Policy::Recreate, &[disturbance]);
        let value = "write value intent None current Some(\"alpha\") retiring []";
        assert_eq!(pass(&coder), [value, "prove", "mirror", "alpha is ours"]);
        assert_eq!(pass(&coder), ["alpha is ours"], "pods read the old one");
        coder.lock().unwrap().roll();
        let done = pass(&coder);
        assert!(done[0].starts_with("remove"), "{done:?}");
        let coder = coder.lock().unwrap();
        assert_eq!((coder.minted, coder.secrets.len()), (1, 1));
        assert_eq!(coder.secrets.values().next().unwrap().data.len(), 1);
    }
}

#[test]
fn the_key_before_goes_when_no_pod_carries_it_and_a_daemon_is_on_the_new_one() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&coder);
    assert_eq!(pass(&coder), ["alpha-1a2b-2 is ours"], "the pods carry the old one");
    coder.lock().unwrap().carried.clear();
    assert_eq!(pass(&coder), ["alpha-1a2b-2 is ours"], "nobody has been seen on the new one");
    coder.lock().unwrap().roll();
    let end = "write - intent None current Some(\"alpha-1a2b-2\") retiring []";
    assert_eq!(pass(&coder), ["delete alpha", end, "mirror", "alpha-1a2b-2 is ours"]);
}

#[test]
fn after_the_grace_period_the_key_before_goes_in_any_case_and_it_is_said_that_nobody_came() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&coder);
    let advance = |by: SignedDuration| {
        let mut coder = coder.lock().unwrap();
        coder.now = coder.now.checked_add(by).unwrap();
    };
    advance(GRACE - SignedDuration::from_secs(1));
    assert_eq!(pass(&coder), ["alpha-1a2b-2 is ours"]);
    advance(SignedDuration::from_secs(1));
    let end = "write - intent None current Some(\"alpha-1a2b-2\") retiring []";
    let done = ["delete alpha", end, "mirror", "alpha-1a2b-2 is ours", Reason::DaemonsNotSeen.as_str()];
    assert_eq!(pass(&coder), done);
}

#[test]
fn a_key_that_pods_still_get_outlives_its_time_which_begins_when_they_get_the_next_one() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    let advance = |by: SignedDuration| {
        let mut coder = coder.lock().unwrap();
        coder.now = coder.now.checked_add(by).unwrap();
    };
    let before = coder.lock().unwrap().carried.first().cloned();
    coder.lock().unwrap().held_up = before;
    pass(&coder);
    for _ in 0..2 {
        advance(GRACE);
        let again = "write - intent None current Some(\"alpha-1a2b-2\") retiring [\"alpha\"]";
        let done = [again, "mirror", "alpha-1a2b-2 is ours", Reason::DaemonsNotSeen.as_str()];
        assert_eq!(pass(&coder), done);
    }
    coder.lock().unwrap().held_up = None;
    advance(GRACE - SignedDuration::from_secs(1));
    assert_eq!(pass(&coder), ["alpha-1a2b-2 is ours", Reason::DaemonsNotSeen.as_str()]);
    advance(SignedDuration::from_secs(1));
    assert_eq!(pass(&coder)[0], "delete alpha");
}

#[test]
fn without_pods_the_key_before_stays_for_the_overlap() {
    let coder = after(Policy::OnRequest, &[Disturbance::Rotate]);
    pass(&coder);
    assert_eq!(pass(&coder), ["alpha-1a2b-2 is ours"]);
    disturb(&coder, Disturbance::Seconds(660));
    assert_eq!(pass(&coder)[0], "delete alpha");
}

#[test]
fn the_schedule_rotates_when_it_is_time_and_not_before() {
    let coder = settled(Policy::OnRequest);
    {
        let mut coder = coder.lock().unwrap();
        coder.wanted.rotate_every = Some(SignedDuration::from_hours(1));
        coder.disturbances += 1;
    }
    let rotated = coder.lock().unwrap().status.rotated_at.unwrap();
    let at = |minutes: i64| rotated.checked_add(SignedDuration::from_mins(minutes)).unwrap();
    coder.lock().unwrap().now = at(59);
    assert_eq!(pass(&coder), ["alpha is ours"]);
    coder.lock().unwrap().now = at(60);
    assert_eq!(pass(&coder).last().unwrap(), "alpha-1a2b-2 is ours");
    assert_eq!(pass(&coder).last().unwrap(), "alpha-1a2b-2 is ours");
    assert_eq!(coder.lock().unwrap().minted, 2);
}

#[test]
fn a_key_that_is_back_and_ours_by_its_name_is_revoked_again() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    settle(&coder);
    disturb(&coder, Disturbance::Rotate);
    settle(&coder);
    disturb(&coder, Disturbance::RestoreKey);
    assert_eq!(coder.lock().unwrap().ours().count(), 2);
    settle(&coder);
    let coder = coder.lock().unwrap();
    assert_eq!((coder.ours().count(), coder.minted), (1, 3));
}

#[test]
fn a_key_of_the_same_name_that_somebody_made_is_not_revoked_for_its_name() {
    let coder = after(Policy::Recreate, &[Disturbance::Rotate]);
    pass(&coder);
    // Somebody deletes the one that is on its way out, and makes another.
    {
        let mut coder = coder.lock().unwrap();
        coder.rows.retain(|it| it.key.name != "alpha");
        let tags = coder.wanted.tags.clone();
        coder.foreign("alpha", &tags, 0);
    }
    settle(&coder);
    assert_eq!(coder.lock().unwrap().rows.iter().filter(|it| it.is_foreign).count(), 1);
}

#[test]
fn another_deployment_under_the_same_name_gets_a_key_and_the_old_one_is_left() {
    let coder = settled(Policy::Recreate);
    {
        let mut coder = coder.lock().unwrap();
        coder.wanted.place = place("main", 3);
        coder.disturbances += 1;
    }
    let done = pass(&coder);
    assert_eq!(done.last().unwrap(), "alpha-1a2b-2 is ours");
    assert!(done.contains(&"left alpha".to_owned()), "{done:?}");
    assert!(!done.iter().any(|it| it.starts_with("delete")), "{done:?}");
    let record = coder.lock().unwrap().status.clone();
    assert!(record.retiring.is_empty(), "{record:?}");
}

#[test]
fn a_key_that_stays_is_named_also_where_a_person_brought_another_one() {
    let coder = settled(Policy::Recreate);
    let value = {
        let mut coder = coder.lock().unwrap();
        coder.wanted.place = place("main", 3);
        coder.disturbances += 1;
        let tags = coder.wanted.tags.clone();
        coder.foreign("somebody", &tags, 0);
        coder.rows.last().unwrap().value.clone()
    };
    brought(&coder, Some(&value));
    let done = pass(&coder);
    assert_eq!(done.last().unwrap(), "somebody is not ours");
    let at = |what: &str| done.iter().position(|it| it == what);
    assert!(at("left alpha").is_some() && at("left alpha") < at("mirror"), "{done:?}");
    assert!(!coder.lock().unwrap().status.names_key("alpha", None), "it is forgotten");
}

#[test]
fn a_value_of_somebody_else_is_kept_if_it_would_do_and_replaced_if_not() {
    let coder = Coder::new(Policy::Recreate);
    let tags = coder.lock().unwrap().wanted.tags.clone();
    coder.lock().unwrap().foreign("somebody", &tags, 0);
    settle(&coder);
    disturb(&coder, Disturbance::OthersValue);
    assert_eq!(pass(&coder).last().unwrap(), "somebody is not ours");
    settle(&coder);
    assert_eq!(coder.lock().unwrap().ours().count(), 0, "ours has gone");
    disturb(&coder, Disturbance::Tags);
    assert_eq!(pass(&coder).last().unwrap(), "alpha-1a2b-2 is ours");
}

/// A Secret that a person made, with that value.
pub(super) fn brought(coder: &Shared, value: Option<&str>) {
    let mut coder = coder.lock().unwrap();
    let wanted = coder.wanted.secret.clone();
    let data = value.map(|it| (wanted.key.clone(), it.to_owned())).into_iter().collect();
    let secret =
        Stored { owner: Owner::Users, data, record: None, withheld: None, version: 1, is_immutable: false };
    coder.secrets.insert(wanted.name, secret);
    coder.newest = None;
}

#[test]
fn a_secret_that_a_person_brought_is_used_or_refused_and_never_written() {
    for policy in [Policy::Recreate, Policy::OnRequest] {
        let coder = Coder::new(policy);
        let other = [("other".to_owned(), String::new())].into();
        {
            let mut coder = coder.lock().unwrap();
            let tags = coder.wanted.tags.clone();
            coder.foreign("right", &tags, 0);
            coder.foreign("wrong", &other, 0);
        }
        for (value, reason) in [
            (None, api::Reason::NotOurs.as_str()),
            (Some("spoilt"), api::Reason::Invalid.as_str()),
            (Some("value-2"), api::Reason::Invalid.as_str()),
            (Some("value-1"), "right is not ours"),
        ] {
            brought(&coder, value);
            assert_eq!(pass(&coder).last().unwrap(), reason);
            let coder = coder.lock().unwrap();
            assert_eq!((coder.minted, coder.secrets.values().next().unwrap().version), (0, 1));
        }
    }
}

#[test]
fn a_persons_secret_in_place_of_ours_ends_our_key_after_its_time() {
    let coder = settled(Policy::Recreate);
    let tags = coder.lock().unwrap().wanted.tags.clone();
    coder.lock().unwrap().foreign("right", &tags, 0);
    brought(&coder, Some("value-2"));
    assert_eq!(pass(&coder).last().unwrap(), "right is not ours");
    assert_eq!(coder.lock().unwrap().ours().count(), 1, "pods may carry it");
    coder.lock().unwrap().carried.clear();
    disturb(&coder, Disturbance::Seconds(660));
    pass(&coder);
    let coder = coder.lock().unwrap();
    assert_eq!((coder.ours().count(), coder.minted), (0, 1));
    assert!(coder.status.retiring.is_empty());
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
        let coder = after(Policy::OnRequest, &[disturbance]);
        assert_eq!(pass(&coder).last().unwrap(), reason, "{disturbance:?}");
        let writes = coder.lock().unwrap().writes;
        assert_eq!(pass(&coder).last().unwrap(), reason, "{disturbance:?}");
        assert_eq!(coder.lock().unwrap().writes, writes, "{disturbance:?}");
        assert_eq!(coder.lock().unwrap().minted, 1, "{disturbance:?}");
        disturb(&coder, Disturbance::Rotate);
        assert!(pass(&coder).last().unwrap().ends_with("is ours"), "{disturbance:?}");
        pass(&coder);
        assert_eq!(coder.lock().unwrap().minted, 2, "{disturbance:?}");
    }
}

#[test]
fn a_name_that_somebody_has_is_said_and_only_a_request_takes_another() {
    let coder = Coder::new(Policy::OnRequest);
    disturb(&coder, Disturbance::ForeignName);
    assert_eq!(pass(&coder).last().unwrap(), Reason::NameTaken.as_str());
    assert!(coder.lock().unwrap().secrets.is_empty());
    disturb(&coder, Disturbance::Rotate);
    assert_eq!(pass(&coder).last().unwrap(), "alpha-1a2b-1 is ours");
}

#[test]
fn key_and_secret_gone_together_is_as_if_there_were_none() {
    let coder = after(Policy::OnRequest, &[Disturbance::DeleteKey, Disturbance::DeleteSecret]);
    assert_eq!(pass(&coder).last().unwrap(), "alpha-1a2b-2 is ours");
}

#[test]
fn a_status_of_coder_k8s_is_enough_to_go_on_with() {
    let coder = Coder::new(Policy::Recreate);
    let tags = coder.lock().unwrap().wanted.tags.clone();
    {
        let mut coder = coder.lock().unwrap();
        coder.foreign("alpha", &tags, 1);
        let row = coder.rows.first_mut().unwrap();
        row.is_foreign = false;
        let LiveKey { id, organization_id, .. } = row.key.clone();
        let current = Held {
            name: "alpha".to_owned(),
            id: Some(id),
            organization_id: Some(organization_id),
            place: engine::secrets::Place { deployment_id: None, ..place("main", 1) },
            is_ours: true,
            ..Held::default()
        };
        coder.status = Record { current: Some(current), ..Record::default() };
    }
    brought(&coder, Some("value-1"));
    coder.lock().unwrap().secrets.values_mut().for_each(|it| it.owner = Owner::Ours);
    settle(&coder);
    let coder = coder.lock().unwrap();
    assert_eq!(coder.minted, 0);
    assert!(coder.status.current.as_ref().unwrap().is_ours);
    assert_eq!(coder.status.current.as_ref().unwrap().place.deployment_id, Some(Uuid::from_u128(1)));
}

#[test]
fn a_copy_of_a_secret_is_no_claim_to_its_key() {
    let coder = settled(Policy::Recreate);
    {
        let mut coder = coder.lock().unwrap();
        coder.rows.iter_mut().for_each(|it| it.is_foreign = true);
        coder.status = Record::default();
        let base = "Alpha";
        coder.wanted.names = engine::secrets::Names::new(base, "ffff0000-0000-0000-0000-000000000000");
        coder.secrets.values_mut().for_each(|it| it.owner = Owner::Users);
    }
    assert_eq!(pass(&coder).last().unwrap(), "alpha is not ours");
    super::finish(&coder);
    assert_eq!(coder.lock().unwrap().rows.len(), 1);
}

#[test]
fn a_key_that_another_object_left_is_shown_to_no_address_but_its_own() {
    let coder = settled(Policy::Recreate);
    {
        let mut coder = coder.lock().unwrap();
        coder.status = Record::default();
        coder.wanted.names = engine::secrets::Names::new("Alpha", "ffff0000-0000-0000-0000-000000000000");
        coder.secrets.values_mut().for_each(|it| it.owner = Owner::Users);
        let stored = coder.secrets.values_mut().next().and_then(|it| it.record.as_mut()?.current.as_mut());
        stored.unwrap().place.url = "https://coder.test".to_owned();
        // The id of the deployment is the same: anybody may claim it.
        coder.wanted.place.url = "https://stranger.test".to_owned();
    }
    let done = pass(&coder);
    assert_eq!(done.last().unwrap(), api::Reason::SecretNotAllowed.as_str());
    assert!(!done.contains(&"prove".to_owned()), "{done:?}");
}

#[test]
fn withheld_secret_is_neither_sent_nor_written() {
    let coder = Coder::new(Policy::Recreate);
    brought(&coder, Some("value-1"));
    let withheld =
        Blocked { reason: api::Reason::HeldByOther, message: "CoderProvisioner x keeps".to_owned() };
    coder.lock().unwrap().secrets.values_mut().for_each(|it| it.withheld = Some(withheld.clone()));
    let done = pass(&coder);
    assert_eq!(done.last().unwrap(), api::Reason::HeldByOther.as_str());
    assert!(!done.contains(&"prove".to_owned()), "{done:?}");
    let coder = coder.lock().unwrap();
    assert_eq!((coder.minted, coder.secrets.values().next().unwrap().version), (0, 1));
}
