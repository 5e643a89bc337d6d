use serde_json::json;

use super::*;
use crate::kinds::control_plane::license::{LicenseVerdict, Unread};

fn plane(licensed: bool, status: Option<CoderControlPlaneStatus>) -> CoderControlPlane {
    let mut spec =
        json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "c"}}});
    if licensed {
        spec["licenseSecretRef"] = json!({"name": "license"});
    }
    let mut plane: CoderControlPlane = serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1",
        "kind": "CoderControlPlane", "metadata": {"name": "main", "generation": 1}, "spec": spec}))
    .unwrap();
    plane.status = status;
    plane
}

fn build() -> BuildInfo {
    serde_json::from_value(json!({"version": "v2.36.0", "deployment_id": Uuid::from_u128(1)})).unwrap()
}

fn licensing(status: Option<bool>, reason: Reason, users: i64) -> Licensing {
    let entitlements = serde_json::from_value(
        json!({"has_license": true, "refreshed_at": "2026-01-01T00:00:00Z", "features": {
        "multiple_organizations": {"entitlement": "entitled", "enabled": true},
        "audit_log": {"entitlement": "not_entitled", "enabled": false},
        "user_limit": {"entitlement": "entitled", "enabled": true, "limit": 100, "actual": users}}}),
    )
    .unwrap();
    Licensing {
        verdict: LicenseVerdict { status, reason, message: "words".to_owned() },
        licenses: Some(Vec::new()),
        entitlements: Some(Summary::of(&entitlements)),
        record: LicenseRecord::default(),
        unread: None,
        applied: None,
        announcements: Vec::new(),
    }
}

fn findings<'a>(build: &'a BuildInfo, licensing: &'a Licensing, second: i64) -> PlaneFindings<'a> {
    PlaneFindings {
        access: Ok(build),
        supplied_token: None,
        token_secret: None,
        account: None,
        workload: None,
        url: Some("https://coder.example.com".to_owned()),
        licensing: Some(licensing),
        held_back: None,
        reverted: None,
        is_applied: true,
        changed: false,
        requested: None,
        now: Timestamp::from_second(second).unwrap(),
    }
}

fn after(plane: &CoderControlPlane, licensing: &Licensing, second: i64) -> CoderControlPlaneStatus {
    status(plane, &findings(&build(), licensing, second))
}

fn says(status: &CoderControlPlaneStatus, kind: &str) -> (String, String) {
    let found = status.common.conditions.iter().find(|it| it.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn word(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_declared_licence_that_is_not_installed_is_not_ready_and_access_is() {
    let status = after(&plane(true, None), &licensing(Some(false), Reason::Invalid, 1), 1);
    assert_eq!(says(&status, "Ready"), word("False", "LicenseNotApplied"));
    assert_eq!(says(&status, "LicenseApplied"), word("False", "Invalid"));
    assert_eq!(says(&status, "OperatorAccessReady"), word("True", "UpToDate"));
    assert_eq!(says(&status, "Stalled").0, "True");
    assert_eq!(status.operator_access_ready, Some(true), "what needs no licence goes on");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
}

#[test]
fn without_a_declared_licence_ready_does_not_speak_of_one() {
    let status = after(&plane(false, None), &licensing(None, Reason::Pending, 1), 1);
    assert_eq!(says(&status, "Ready"), word("True", "UpToDate"));
    assert_eq!(says(&status, "LicenseApplied"), word("Unknown", "Pending"));
    assert_eq!(status.license_tier.as_deref(), Some("premium"));
    let names: Vec<&str> = status.features.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["multiple_organizations", "user_limit"]);
}

#[test]
fn a_pass_that_finds_nothing_new_leaves_the_status_as_it_is_for_six_hours() {
    let first = after(&plane(true, None), &licensing(Some(true), Reason::Applied, 1), 0);
    let again = |users, second| {
        after(&plane(true, Some(first.clone())), &licensing(Some(true), Reason::Applied, users), second)
    };
    assert_eq!(again(1, 300), first);
    assert_eq!(again(7, 300), first, "users come and go");
    let later = again(7, 6 * 3600);
    assert_ne!(later.entitlements_last_checked, first.entitlements_last_checked);
    assert_eq!(later.users.unwrap().actual, Some(7));
}

#[test]
fn licences_that_cannot_be_read_stay_in_the_status() {
    let mut before = after(&plane(true, None), &licensing(Some(true), Reason::Applied, 1), 0);
    let shown = json!([{"uuid": Uuid::from_u128(1), "id": 1, "featureSet": "premium"}]);
    before.licenses = serde_json::from_value(shown).unwrap();
    let unread = Licensing { licenses: None, entitlements: None, ..licensing(Some(false), Reason::Error, 1) };
    let next = after(&plane(true, Some(before.clone())), &unread, 1);
    assert_eq!((&next.licenses, &next.features), (&before.licenses, &before.features));
    assert_eq!(says(&next, "LicenseApplied"), word("False", "Error"));
    assert_eq!(says(&next, "Entitlements"), word("Unknown", "NotObserved"));
    let read = licensing(Some(false), Reason::SecretMissing, 1);
    assert_eq!(after(&plane(true, Some(before)), &read, 1).licenses, [], "gone, and known to be");
}

#[test]
fn without_access_everything_that_was_known_stays_and_says_so() {
    let first = after(&plane(true, None), &licensing(Some(true), Reason::Applied, 1), 0);
    let waiting = Blocked { reason: Reason::Unreachable, message: "refused".to_owned() };
    let now = Timestamp::from_second(9).unwrap();
    let findings = PlaneFindings {
        access: Err(&waiting),
        supplied_token: None,
        token_secret: None,
        account: None,
        workload: None,
        url: None,
        licensing: None,
        held_back: None,
        reverted: None,
        is_applied: true,
        changed: false,
        requested: None,
        now,
    };
    let status = status(&plane(true, Some(first.clone())), &findings);
    assert_eq!(says(&status, "Ready"), word("False", "Unreachable"));
    assert_eq!(says(&status, "LicenseApplied"), word("False", "Pending"));
    assert_eq!(says(&status, "Entitlements"), word("Unknown", "NotObserved"));
    assert_eq!((status.license_tier, status.version), (first.license_tier, first.version));
    assert_eq!(status.operator_access_ready, Some(false));
}

fn message(status: &CoderControlPlaneStatus, kind: &str) -> String {
    status.common.conditions.iter().find(|it| it.type_ == kind).unwrap().message.clone()
}

#[test]
fn expiry_of_a_supplied_token_is_reported_before_and_after_it() {
    let (build, end) = (build(), Timestamp::from_second(100_000).unwrap());
    let credential = Some(CredentialStatus { expires_at: Time(end), told_days: Some(1) });
    let supplied = SuppliedToken { lifetime: Lifetime::Until(end), credential: credential.clone() };
    let at = |second: i64, access| PlaneFindings {
        access,
        supplied_token: Some(&supplied),
        token_secret: None,
        account: None,
        workload: None,
        url: None,
        licensing: None,
        held_back: None,
        reverted: None,
        is_applied: true,
        changed: false,
        requested: None,
        now: Timestamp::from_second(second).unwrap(),
    };
    let works = status(&plane(false, None), &at(0, Ok(&build)));
    assert!(message(&works, "OperatorAccessReady").ends_with("the token expires on 1970-01-02"), "{works:?}");
    assert_eq!(works.credential, credential);

    let refused = Blocked { reason: Reason::Unauthorized, message: "401".to_owned() };
    let early = status(&plane(false, Some(works.clone())), &at(1, Err(&refused)));
    assert_eq!(message(&early, "OperatorAccessReady"), "401", "it was revoked, or is another one");
    let late = status(&plane(false, Some(works)), &at(100_000, Err(&refused)));
    assert!(
        message(&late, "OperatorAccessReady").contains("expired on 1970-01-02: put a new one"),
        "{late:?}"
    );
    assert_eq!(late.credential, credential, "that is how we know");
}

#[test]
fn what_is_left_out_is_told_by_complete_whatever_else_is_wrong() {
    let build = build();
    let notice = |reason, message: &str| Blocked { reason, message: message.to_owned() };
    let complete = |notices: Option<Vec<Blocked>>| {
        let waiting = Blocked { reason: Reason::Progressing, message: "0 of 1 pods".to_owned() };
        let workload = Workload { notices, ..Workload::stopped(waiting) };
        let findings = PlaneFindings {
            access: Ok(&build),
            supplied_token: None,
            token_secret: None,
            account: None,
            workload: Some(&workload),
            url: None,
            licensing: None,
            held_back: None,
            reverted: None,
            is_applied: true,
            changed: false,
            requested: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let status = status(&plane(false, None), &findings);
        (says(&status, "Complete"), message(&status, "Complete"))
    };
    let database = notice(Reason::NoDatabase, "no database");
    let left_out = vec![
        database.clone(),
        notice(Reason::GatewayAPIMissing, "no routes"),
        notice(Reason::NoConsent, "no consent"),
    ];
    assert_eq!(
        complete(Some(left_out)),
        (word("False", "GatewayAPIMissing"), "no routes; no consent".to_owned())
    );
    assert_eq!(complete(Some(vec![database])).0, word("True", "UpToDate"));
    assert_eq!(complete(None).0, word("Unknown", "NotObserved"), "nothing was looked at");
}

#[test]
fn steps_that_were_refused_or_are_left_are_told_and_nothing_is_claimed_that_was_not_looked_at() {
    let blocked = |reason| Blocked { reason, message: reason.to_string() };
    let report = |outcome, refused: &[Reason]| {
        let refused = refused.iter().map(|it| blocked(*it)).collect();
        Report { refused, ..Report::of(outcome, None) }
    };
    let serves = || Workload {
        standing: Ok(()),
        notices: Some(Vec::new()),
        ..Workload::stopped(blocked(Reason::Progressing))
    };
    let unread = Workload::stopped(blocked(Reason::SecretUnreadable)).after(&report(Outcome::Equal, &[]));
    assert_eq!(unread.notices, None, "nothing was looked at");
    assert_eq!(serves().after(&report(Outcome::Equal, &[])).standing, Ok(()));
    let refused = serves().after(&report(Outcome::Equal, &[Reason::NotApplied]));
    assert_eq!(refused.standing, Err(blocked(Reason::NotApplied)));
    assert_eq!(refused.notices, Some(vec![blocked(Reason::NotApplied)]));
    let left = serves().after(&report(Outcome::Blocked(blocked(Reason::Progressing)), &[]));
    assert_eq!(left.standing, Err(blocked(Reason::Progressing)), "not all steps were done");
    let known = Workload { standing: Err(blocked(Reason::NotOurs)), ..serves() };
    let known = known.after(&report(Outcome::Equal, &[Reason::NotApplied]));
    assert_eq!(known.standing, Err(blocked(Reason::NotOurs)), "what was known before comes first");
}

#[test]
fn record_of_before_an_upload_does_not_replace_the_one_that_names_it() {
    let record = |epoch| LicenseRecord { epoch, ..LicenseRecord::default() };
    let shown = |before: u64, found: u64| {
        let status = CoderControlPlaneStatus {
            license_record: serde_json::to_string(&record(before)).ok(),
            ..CoderControlPlaneStatus::default()
        };
        let found = Licensing { record: record(found), ..licensing(Some(false), Reason::Error, 1) };
        let next = after(&plane(true, Some(status)), &found, 1);
        serde_json::from_str::<LicenseRecord>(&next.license_record.unwrap()).unwrap().epoch
    };
    assert_eq!((shown(4, 3), shown(3, 3), shown(3, 4)), (4, 3, 4));
}

#[test]
fn an_image_that_was_started_counts_for_the_database_while_an_older_one_still_answers() {
    let workload = |started: &str| Workload {
        standing: Ok(()),
        ready_replicas: Some(1),
        database_version: Some(started.to_owned()),
        notices: None,
        workspace_namespaces: None,
    };
    let (build, now) = (build(), Timestamp::from_second(1).unwrap());
    let known = |status: Option<CoderControlPlaneStatus>, started: &str| {
        let (access, workload) = (Ok(&build), workload(started));
        let workload = Some(&workload);
        let findings = PlaneFindings {
            access,
            supplied_token: None,
            token_secret: None,
            account: None,
            workload,
            url: None,
            licensing: None,
            held_back: None,
            reverted: None,
            is_applied: true,
            changed: false,
            requested: None,
            now,
        };
        super::status(&plane(false, status), &findings)
    };
    let first = known(None, "v2.36.0");
    assert_eq!(first.database_version.as_deref(), Some("v2.36.0"));
    let second = known(Some(first), "v2.37.0");
    assert_eq!(second.database_version.as_deref(), Some("v2.37.0"));
    assert_eq!(known(Some(second), "v2.36.0").database_version.as_deref(), Some("v2.37.0"), "never back");
}

#[test]
fn applied_licence_is_reported_with_its_time_and_hash_and_outlives_a_failing_read() {
    let at = Timestamp::from_second(77).unwrap();
    let applied = Some(license::Applied { at, hash: "h".to_owned() });
    let found = Licensing { applied, ..licensing(Some(true), Reason::Applied, 1) };
    let first = after(&plane(true, None), &found, 9);
    let stamps = |it: &CoderControlPlaneStatus| {
        (it.license_last_applied.as_ref().map(|it| it.0), it.license_last_applied_hash.clone())
    };
    assert_eq!(stamps(&first), (Some(at), Some("h".to_owned())));
    let unread = Licensing { entitlements: None, ..licensing(Some(false), Reason::Error, 1) };
    let later = after(&plane(true, Some(first.clone())), &unread, 10);
    assert_eq!(stamps(&later), stamps(&first));
}

#[test]
fn unreadable_licences_concern_only_a_declared_one() {
    let unread = |status, reason| {
        let message = "500 from GET /api/v2/entitlements".to_owned();
        let unread = Some(Unread { message, is_transient: true });
        Licensing { entitlements: None, unread, ..licensing(status, reason, 1) }
    };
    let without = after(&plane(false, None), &unread(None, Reason::Pending), 1);
    assert_eq!(says(&without, "Ready"), word("True", "UpToDate"));
    assert_eq!(says(&without, "LicenseApplied"), word("Unknown", "Pending"));
    assert_eq!(says(&without, "Entitlements"), word("Unknown", "NotObserved"));
    assert!(message(&without, "Entitlements").starts_with("500 from"), "{without:?}");
    let with = after(&plane(true, None), &unread(Some(false), Reason::Error), 1);
    assert_eq!(says(&with, "Ready"), word("False", "LicenseNotApplied"));
}

#[test]
fn reconcile_request_is_handled_once_entitlements_are_read() {
    let unread = |is_transient| {
        let unread = Some(Unread { message: "503".to_owned(), is_transient });
        Licensing { entitlements: None, unread, ..licensing(None, Reason::Pending, 1) }
    };
    let build = build();
    let handled = |licensing: &Licensing| {
        let mut findings = findings(&build, licensing, 1);
        findings.requested = Some("now".to_owned());
        let next = status(&plane(false, None), &findings);
        (next.common.last_handled_reconcile_at, findings.readiness().is_retried_soon)
    };
    assert_eq!(handled(&unread(true)), (None, true));
    let now = Some("now".to_owned());
    assert_eq!(handled(&unread(false)), (now.clone(), false), "another reconcile would find the same");
    assert_eq!(handled(&licensing(None, Reason::Pending, 1)), (now, false));
    let common = Status { last_handled_reconcile_at: Some("before".to_owned()), ..Status::default() };
    let known = CoderControlPlaneStatus { common, ..CoderControlPlaneStatus::default() };
    let kept = after(&plane(false, Some(known)), &unread(true), 1);
    assert_eq!(kept.common.last_handled_reconcile_at.as_deref(), Some("before"));
}

#[test]
fn licence_that_cannot_be_installed_waits_for_the_interval() {
    let soon = |status, reason| {
        let (build, licensing) = (build(), licensing(status, reason, 1));
        let findings = PlaneFindings {
            access: Ok(&build),
            supplied_token: None,
            token_secret: None,
            account: None,
            workload: None,
            url: None,
            licensing: Some(&licensing),
            held_back: None,
            reverted: None,
            is_applied: true,
            changed: false,
            requested: None,
            now: Timestamp::UNIX_EPOCH,
        };
        findings.readiness().is_retried_soon
    };
    for reason in [Reason::NotSupported, Reason::Invalid, Reason::Expired] {
        assert!(!soon(Some(false), reason), "{reason:?}");
    }
    for reason in [Reason::Pending, Reason::SecretMissing, Reason::Forbidden, Reason::Error] {
        assert!(soon(Some(false), reason), "{reason:?}");
    }
    assert!(!soon(Some(true), Reason::Applied));
}

#[test]
fn secret_of_our_own_token_is_named_until_access_is_disabled() {
    let build = build();
    let reference = |before: Option<SecretKeyRef>, access, token_secret| {
        let status = CoderControlPlaneStatus { operator_token_secret_ref: before, ..Default::default() };
        let findings = PlaneFindings {
            access,
            supplied_token: None,
            token_secret,
            account: None,
            workload: None,
            url: None,
            licensing: None,
            held_back: None,
            reverted: None,
            is_applied: true,
            changed: false,
            requested: None,
            now: Timestamp::UNIX_EPOCH,
        };
        super::status(&plane(false, Some(status)), &findings).operator_token_secret_ref
    };
    let named = Some(SecretKeyRef { name: "main-operator-token".to_owned(), key: Some("token".to_owned()) });
    assert_eq!(reference(None, Ok(&build), Some("main-operator-token")), named);
    assert_eq!(reference(named.clone(), Ok(&build), None), None, "a supplied token is the person's own");
    let silent = Blocked { reason: Reason::Unreachable, message: String::new() };
    assert_eq!(reference(named.clone(), Err(&silent), None), named, "the Secret is still there");
    let disabled = Blocked { reason: Reason::AccessDisabled, message: String::new() };
    assert_eq!(reference(named, Err(&disabled), None), None);
}

#[test]
fn missing_database_is_reported_whatever_else_is_wrong() {
    let build = build();
    let configured = |notices: Option<Vec<Blocked>>| {
        let waiting = Blocked { reason: Reason::RolloutStuck, message: "0 of 1 pods".to_owned() };
        let workload = Workload { notices, ..Workload::stopped(waiting) };
        let findings = PlaneFindings {
            access: Ok(&build),
            supplied_token: None,
            token_secret: None,
            account: None,
            workload: Some(&workload),
            url: None,
            licensing: None,
            held_back: None,
            reverted: None,
            is_applied: true,
            changed: false,
            requested: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let status = status(&plane(false, None), &findings);
        assert_eq!(says(&status, "Ready"), word("False", "RolloutStuck"));
        (says(&status, "DatabaseConfigured"), message(&status, "DatabaseConfigured"))
    };
    let notice = |reason| Blocked { reason, message: format!("why: {reason}") };
    let absent = notice(Reason::NoDatabase);
    let refused = notice(Reason::DatabaseRemovalRefused);
    assert_eq!(
        configured(Some(vec![absent.clone()])),
        (word("False", "NoDatabase"), "why: NoDatabase".to_owned())
    );
    assert_eq!(configured(Some(vec![absent, refused])).0, word("False", "DatabaseRemovalRefused"));
    assert_eq!(configured(Some(Vec::new())).0, word("True", "UpToDate"));
    assert_eq!(configured(None).0, word("Unknown", "NotObserved"));
}
