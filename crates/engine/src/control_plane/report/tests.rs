use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::control_plane::license::{Reason, Verdict};

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
        verdict: Verdict { status, reason, message: "words".to_owned() },
        licenses: Vec::new(),
        entitlements: Some(Summary::of(&entitlements)),
        record: LicenseRecord::default(),
        installed: None,
    }
}

fn after(plane: &CoderControlPlane, licensing: &Licensing, second: i64) -> CoderControlPlaneStatus {
    let (build, now) = (build(), Timestamp::from_second(second).unwrap());
    let url = Some("https://coder.example.com".to_owned());
    let findings = Findings {
        access: Ok(&build),
        workload: None,
        url,
        licensing: Some(licensing),
        requested: None,
        now,
    };
    status(plane, &findings)
}

fn says(status: &CoderControlPlaneStatus, kind: &str) -> (String, String) {
    let found = status.conditions.iter().find(|it| it.type_ == kind).unwrap();
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
fn without_access_everything_that_was_known_stays_and_says_so() {
    let first = after(&plane(true, None), &licensing(Some(true), Reason::Applied, 1), 0);
    let waiting = Waiting { reason: reason::UNREACHABLE, message: "refused".to_owned() };
    let now = Timestamp::from_second(9).unwrap();
    let findings =
        Findings { access: Err(&waiting), workload: None, url: None, licensing: None, requested: None, now };
    let status = status(&plane(true, Some(first.clone())), &findings);
    assert_eq!(says(&status, "Ready"), word("False", "Unreachable"));
    assert_eq!(says(&status, "LicenseApplied"), word("False", "Pending"));
    assert_eq!(says(&status, "Entitlements"), word("Unknown", "NotObserved"));
    assert_eq!((status.license_tier, status.version), (first.license_tier, first.version));
    assert_eq!(status.operator_access_ready, Some(false));
}
