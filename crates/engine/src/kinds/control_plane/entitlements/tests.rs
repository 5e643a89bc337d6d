use super::*;

/// With a licence, and these features covered and enabled.
fn entitlements(covered: &[(&str, &str)]) -> Entitlements {
    let feature = |word: &str| Feature {
        entitlement: word.to_owned(),
        enabled: word != "not_entitled",
        limit: None,
        actual: None,
    };
    Entitlements {
        features: covered.iter().map(|(name, word)| ((*name).to_owned(), feature(word))).collect(),
        warnings: Vec::new(),
        errors: Vec::new(),
        has_license: true,
        trial: false,
        require_telemetry: false,
        refreshed_at: Timestamp::UNIX_EPOCH,
    }
}

fn with_users(actual: i64, limit: i64) -> Entitlements {
    let mut made = entitlements(&[("user_limit", "entitled")]);
    let feature = made.features.get_mut("user_limit").unwrap();
    (feature.actual, feature.limit) = (Some(actual), Some(limit));
    made
}

#[test]
fn the_tier_is_told_by_what_is_covered() {
    let tier = |it: &Entitlements| Tier::of(it).as_str();
    assert_eq!(tier(&Entitlements { has_license: false, trial: true, ..entitlements(&[]) }), "none");
    let premium = [("custom_roles", "entitled")];
    assert_eq!(tier(&Entitlements { trial: true, ..entitlements(&premium) }), "trial");
    assert_eq!(tier(&entitlements(&premium)), "premium");
    assert_eq!(tier(&entitlements(&[("multiple_organizations", "grace_period")])), "premium");
    assert_eq!(tier(&entitlements(&[("custom_roles", "not_entitled")])), "enterprise");
    assert_eq!(tier(&entitlements(&[("audit_log", "entitled")])), "enterprise");
    assert_eq!(Tier::default().as_str(), "unknown");
}

#[test]
fn the_entitlement_of_provisioners_is_one_of_four_words() {
    for word in ["entitled", "grace_period", "not_entitled"] {
        let summary = Summary::of(&entitlements(&[(EXTERNAL_PROVISIONER_DAEMONS, word)]));
        assert_eq!(summary.external_provisioner_daemons.as_str(), word);
    }
    for strange in [&[(EXTERNAL_PROVISIONER_DAEMONS, "leased")][..], &[]] {
        let summary = Summary::of(&entitlements(strange));
        assert_eq!(summary.external_provisioner_daemons, Entitlement::Unknown);
    }
    assert!(Entitlement::GracePeriod.is_covered() && !Entitlement::Unknown.is_covered());
}

#[test]
fn every_feature_is_listed_in_order_with_both_of_its_sides() {
    let mut made = entitlements(&[("scim", "entitled"), ("audit_log", "not_entitled")]);
    made.features.get_mut("scim").unwrap().enabled = false;
    assert_eq!(Summary::of(&made).compact(), ["audit_log=not_entitled,disabled", "scim=entitled,disabled"]);
}

#[test]
fn a_stamp_moves_with_a_change_after_six_hours_and_out_of_the_future() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let ago = |seconds: i64| Timestamp::from_second(1_800_000_000 - seconds).unwrap();
    assert_eq!(stamp(Some(ago(60)), false, now), ago(60));
    assert_eq!(stamp(Some(ago(60)), true, now), now);
    assert_eq!(stamp(Some(ago(6 * 3600)), false, now), now);
    assert_eq!(stamp(Some(ago(-60)), false, now), now);
    assert_eq!(stamp(None, false, now), now);
}

#[test]
fn users_who_come_and_go_are_no_change_and_another_limit_is() {
    let summary = |actual, limit| Summary::of(&with_users(actual, limit));
    assert!(!summary(5, 10).differs(&summary(6, 10)));
    assert!(summary(5, 10).differs(&summary(5, 20)));
    assert_eq!(summary(5, 10).verdict(), summary(6, 10).verdict());
}

#[test]
fn the_condition_names_the_gravest_thing() {
    let reason = |it: &Entitlements| Summary::of(it).verdict();
    assert_eq!(reason(&entitlements(&[("scim", "entitled")])).reason, api::Reason::Licensed);
    let unlicensed = Entitlements { has_license: false, ..entitlements(&[("scim", "not_entitled")]) };
    assert_eq!((reason(&unlicensed).status, reason(&unlicensed).reason), (true, api::Reason::Unlicensed));
    let grace = reason(&entitlements(&[("scim", "grace_period")]));
    assert_eq!((grace.status, grace.reason), (true, api::Reason::GracePeriod));
    assert!(grace.message.contains("scim"), "{}", grace.message);
    let crowded = reason(&with_users(11, 10));
    assert_eq!((crowded.status, crowded.reason), (false, api::Reason::UserLimitExceeded));
    let warned = Entitlements { warnings: vec!["an add-on".to_owned()], ..entitlements(&[]) };
    assert_eq!((reason(&warned).status, reason(&warned).reason), (true, api::Reason::Warnings));
    let broken = Entitlements { errors: vec!["no telemetry".to_owned()], ..warned };
    assert_eq!((reason(&broken).status, reason(&broken).reason), (false, api::Reason::Errors));
    assert!(reason(&broken).message.contains("no telemetry"));
}
