//! The suite on the memory coderd alone, and what only a deployment without a clock of its own can show.

mod differences;
mod time;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use client::{
    Class, Client, ClientOptions, Transport,
    appearance::UpdateAppearance,
    groups::{CreateGroup, UpdateGroup},
    idp_sync::{GroupSync, OrganizationSync, RoleSync},
    organizations::{CreateOrganization, UpdateOrganization},
    routes::{ROUTES, Route},
    transport::BoxFuture,
    users::{CreateFirstUser, CreateToken, CreateUser, ME},
};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use sim::{Clock, Coder, LicenseCheck, Options, state::State};
use uuid::Uuid;

use crate::{
    cases::CASES,
    covered::{BY_REFUSAL, COVERED},
    side::{Host, PASSWORD, Side},
};

const URL: &str = "http://memory.test";
const VERSION: &str = "v2.36.1";

/// A deployment without a rate limit, as the licensed one of the bed.
pub(crate) fn unlimited() -> Coder {
    Coder::new(Options { rate_limit: None, ..options() })
}

fn options() -> Options {
    Options { url: URL.to_owned(), version: VERSION.to_owned(), ..Options::new(Arc::new(Timestamp::now)) }
}

pub(crate) fn side(coder: &Coder) -> Side {
    side_at(coder, Arc::new(Timestamp::now))
}

/// A side whose licences are dated by a clock.
fn side_at(coder: &Coder, clock: Clock) -> Side {
    let host = Memory { coder: coder.clone(), clock };
    Side::new(URL, VERSION, coder.transport(), Arc::new(host))
}

/// A deployment with coderd's rate limit: its transport, its address and the session of its owner.
pub(crate) async fn limited() -> (Arc<dyn Transport>, String, String) {
    let coder = Coder::new(options());
    owner(&coder).await;
    let session = client(&coder).login("owner@sim.test", &SecretString::from(PASSWORD)).await.unwrap();
    (coder.transport(), URL.to_owned(), session.expose_secret().to_owned())
}

/// A deployment in memory.
struct Memory {
    coder: Coder,
    clock: Clock,
}

impl Host for Memory {
    fn sign_license(&self, wanted: Value) -> BoxFuture<'_, String> {
        let license = self.coder.sign_license(&claims(&wanted, (self.clock)()));
        Box::pin(async { license })
    }
}

/// The claims that the bed signs when it is asked in these words.
fn claims(wanted: &Value, now: Timestamp) -> Map<String, Value> {
    const DAY: i64 = 24 * 3600;
    let now = now.as_second();
    let mut claims = wanted.as_object().unwrap().clone();
    let (nbf, license_expires, exp) = match claims.remove("term").as_ref().and_then(Value::as_str) {
        None => (-60, 3600, 3600),
        Some("valid") => (-60, 53 * DAY, 60 * DAY),
        Some("grace") => (-2 * DAY, -DAY, DAY),
        Some("expired") => (-4 * DAY, -3 * DAY, -2 * DAY),
        Some("future") => (DAY, 53 * DAY, 60 * DAY),
        Some(other) => panic!("no term {other}"),
    };
    for (name, offset) in [("nbf", nbf), ("license_expires", license_expires), ("exp", exp)] {
        claims.insert(name.to_owned(), json!(now + offset));
    }
    for (name, claim) in [("grace_at", "license_expires"), ("expires_at", "exp")] {
        if let Some(date) = claims.remove(name) {
            let date: Timestamp = date.as_str().unwrap().parse().unwrap();
            claims.insert(claim.to_owned(), json!(date.as_second()));
        }
    }
    claims.entry("feature_set").or_insert_with(|| json!(""));
    claims.insert("iss".to_owned(), json!("test@testing.test"));
    claims.insert("account_id".to_owned(), json!("test-account-id"));
    claims
}

/// Runs all cases.
async fn run_all(side: &mut Side) {
    for case in CASES {
        (case.run)(side).await;
        side.begin();
    }
}

/// The route of a request such as `GET /api/v2/users/me?x`: of those that match the one with the fewest parameters.
fn route(request: &str) -> Option<&'static Route> {
    let (method, path) = request.split_once(' ')?;
    let segments: Vec<&str> = path.split('?').next()?.split('/').collect();
    let matches = |route: &&&'static Route| {
        let template: Vec<&str> = route.path().split('/').collect();
        let is_same = |(one, other): (&&str, &&str)| other.starts_with('{') || one == other;
        route.method() == method
            && template.len() == segments.len()
            && segments.iter().zip(&template).all(is_same)
    };
    ROUTES.iter().filter(matches).min_by_key(|it| it.path().matches('{').count()).copied()
}

/// The routes that each case covers: those that answered it with a success.
async fn covered() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut side = side(&unlimited());
    let mut covered = BTreeMap::new();
    for case in CASES {
        (case.run)(&mut side).await;
        side.begin();
        let succeeded = side.take_succeeded();
        let routes = succeeded.iter().filter_map(|it| route(it));
        covered.insert(case.name, routes.map(|it| format!("{} {}", it.method(), it.path())).collect());
    }
    covered
}

#[tokio::test]
async fn every_listed_case_covers_its_route() {
    let covered = covered().await;
    let by_case = |(route, case): &&(&str, &str)| {
        let is_covered = |it: &BTreeSet<String>| it.contains(*route);
        BY_REFUSAL.contains(route) || covered.get(case.replace("::", " ").as_str()).is_some_and(is_covered)
    };
    let wrong: Vec<_> = COVERED.iter().filter(|it| !by_case(it)).collect();
    assert!(wrong.is_empty(), "these cases do not get a success from these routes: {wrong:#?}");
    let is_listed = |it: &&Route| {
        let name = format!("{} {}", it.method(), it.path());
        COVERED.iter().any(|(route, _)| *route == name)
    };
    let missing: Vec<_> = ROUTES.iter().filter(|it| !is_listed(it)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn same_seed_and_requests_give_the_same_state() {
    let mut states = BTreeSet::new();
    for _ in 0..2 {
        let clock: Clock = Arc::new(|| Timestamp::from_second(1_800_000_000).unwrap());
        let coder = Coder::new(Options { clock: Arc::clone(&clock), rate_limit: None, ..options() });
        run_all(&mut side_at(&coder, clock)).await;
        states.insert(serde_json::to_string(&coder.state()).unwrap());
    }
    assert_eq!(states.len(), 1);
}

/// An anonymous client.
fn client(coder: &Coder) -> Client {
    let options = ClientOptions { url: URL.parse().unwrap(), token: None, transport: coder.transport() };
    Client::new(options).unwrap()
}

/// The owner of a licensed deployment.
async fn owner(coder: &Coder) -> Client {
    let anonymous = client(coder);
    let password = SecretString::from(PASSWORD);
    let wanted = CreateFirstUser {
        email: "owner@sim.test".to_owned(),
        username: "owner".to_owned(),
        password: password.clone(),
    };
    anonymous.create_first_user(&wanted).await.unwrap();
    let session = anonymous.login(&wanted.email, &password).await.unwrap();
    let owner = anonymous.with_token(session).unwrap();
    let license = SecretString::from(coder.sign_license(&Map::new()));
    owner.add_license(&license).await.unwrap();
    owner
}

#[tokio::test]
async fn state_survives_a_restart() {
    let coder = unlimited();
    let signed_in = owner(&coder).await;
    let me = signed_in.current_user().await.unwrap();
    let saved = serde_json::to_string(&coder.state()).unwrap();
    let state: State = serde_json::from_str(&saved).unwrap();
    let restarted = client(&Coder::with_state(options(), state));
    let session = restarted.login("owner@sim.test", &SecretString::from(PASSWORD)).await.unwrap();
    assert_eq!(restarted.with_token(session).unwrap().current_user().await.unwrap().id, me.id);
    assert!(restarted.entitlements().await.unwrap().has_license);
}

#[tokio::test]
async fn typed_client_reads_every_answer() {
    let coder = unlimited();
    let owner = owner(&coder).await;
    assert!(owner.has_users().await.unwrap() && !owner.build_info().await.unwrap().deployment_id.is_nil());
    let wanted = CreateOrganization { name: "payments".to_owned(), ..CreateOrganization::default() };
    let organization = owner.create_organization(&wanted).await.unwrap().id;
    owner.update_organization(organization, &UpdateOrganization::default()).await.unwrap();
    assert_eq!(owner.list_organizations().await.unwrap().len(), 2);
    let wanted = CreateUser {
        username: "member".to_owned(),
        email: "member@sim.test".to_owned(),
        password: Some(SecretString::from(PASSWORD)),
        organization_ids: vec![organization],
        ..CreateUser::default()
    };
    let member = owner.create_user(&wanted).await.unwrap().id;
    assert_eq!(owner.list_members(organization).await.unwrap().len(), 2);
    let wanted = CreateGroup { name: "dev".to_owned(), ..CreateGroup::default() };
    let group = owner.create_group(organization, &wanted).await.unwrap().id;
    let add = UpdateGroup { add_users: vec![member], ..UpdateGroup::default() };
    assert_eq!(owner.update_group(group, &add).await.unwrap().members.len(), 1);
    assert_eq!(owner.list_groups(organization).await.unwrap().len(), 2);
    assert_eq!(owner.list_organization_roles(organization).await.unwrap().len(), 7);
    owner.put_organization_sync(&OrganizationSync::default()).await.unwrap();
    owner.put_group_sync(organization, &GroupSync::default()).await.unwrap();
    owner.put_role_sync(organization, &RoleSync::default()).await.unwrap();
    let look = UpdateAppearance {
        application_name: "Sim".to_owned(),
        logo_url: String::new(),
        announcement_banners: Vec::new(),
    };
    owner.put_appearance(&look).await.unwrap();
    assert_eq!(owner.appearance().await.unwrap().application_name, "Sim");
    let key = owner.create_provisioner_key(organization, "pods", &BTreeMap::new()).await.unwrap();
    assert!(owner.prove_provisioner_key(&key).await.unwrap().is_some());
    let token = owner.create_token(ME, &CreateToken::default()).await.unwrap();
    let tokens = owner.list_tokens(ME).await.unwrap();
    assert_eq!(tokens.len(), 1);
    let by_token = owner.with_token(token).unwrap();
    by_token.delete_group(group).await.unwrap();
    by_token.delete_user(member).await.unwrap();
    by_token.delete_provisioner_key(organization, "pods").await.unwrap();
    by_token.delete_organization(organization).await.unwrap();
    let license = owner.list_licenses().await.unwrap()[0].id;
    owner.delete_license(license).await.unwrap();
    owner.delete_token(ME, &tokens[0].id).await.unwrap();
    owner.logout().await.unwrap();
}

#[tokio::test]
async fn audit_log_has_who_changed_what() {
    let coder = unlimited();
    let owner = owner(&coder).await;
    let organization = owner.list_organizations().await.unwrap()[0].id;
    let wanted = CreateGroup { name: "dev".to_owned(), ..CreateGroup::default() };
    let group = owner.create_group(organization, &wanted).await.unwrap().id;
    let change = UpdateGroup { quota_allowance: Some(3), ..UpdateGroup::default() };
    owner.update_group(group, &change).await.unwrap();
    owner.create_group(organization, &wanted).await.unwrap_err();
    owner.delete_group(group).await.unwrap();
    let log = coder.state().audit_log;
    let of_groups: Vec<_> = log.iter().filter(|it| it.change.resource_type == "group").collect();
    let methods: Vec<&str> = of_groups.iter().map(|it| it.method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "DELETE"]);
    assert!(of_groups.iter().all(|it| it.username == "owner" && it.change.resource_id == group.to_string()));
    let quota = |value: &Value| value["quota_allowance"].clone();
    let update = &of_groups[1].change;
    assert_eq!((quota(&update.before), quota(&update.after)), (json!(0), json!(3)));
    assert!(of_groups[2].change.after.is_null());
    assert!(!serde_json::to_string(&log).unwrap().contains(PASSWORD));
}

#[tokio::test]
async fn audit_log_has_the_program_that_asked() {
    let coder = unlimited();
    owner(&coder).await;
    let token = coder.sign_in("owner", SignedDuration::from_hours(1)).unwrap();
    let request = http::Request::put("http://memory.test/api/v2/appearance")
        .header("coder-session-token", token.expose_secret())
        .header("user-agent", "curl/8".to_owned() + &"x".repeat(200))
        .body(r#"{"application_name":"Sim","announcement_banners":[]}"#.into())
        .unwrap();
    assert_eq!(coder.transport().send(request).await.unwrap().status(), 200);
    let state = coder.state();
    let last = state.audit_log.back().unwrap();
    assert_eq!((last.user_agent.len(), last.username.as_str()), (100, "owner"));
    assert!(last.user_agent.starts_with("curl/8x"));
    assert_eq!(coder.read(|it| it.audit_log.len()), state.audit_log.len());
}

#[tokio::test]
async fn only_an_active_account_is_signed_in() {
    let coder = unlimited();
    let hour = SignedDuration::from_hours(1);
    assert!(coder.sign_in("owner", hour).is_none(), "there is no account yet");
    let by_password = owner(&coder).await;
    let by_session = by_password.with_token(coder.sign_in("owner", hour).unwrap()).unwrap();
    assert_eq!(by_session.current_user().await.unwrap().username, "owner");
    let expired = by_password.with_token(coder.sign_in("owner", SignedDuration::ZERO).unwrap()).unwrap();
    assert_eq!(expired.current_user().await.unwrap_err().class(), Class::SignedOut);
    let mut state = coder.state();
    for user in state.users.values_mut() {
        "suspended".clone_into(&mut user.status);
    }
    assert!(Coder::with_state(options(), state).sign_in("owner", hour).is_none());
}

#[tokio::test]
async fn licence_of_another_deployment_is_accepted_only_by_its_claims() {
    let license = SecretString::from(Coder::new(Options { seed: 2, ..options() }).sign_license(&Map::new()));
    let refused = owner(&unlimited()).await.add_license(&license).await.unwrap_err();
    assert_eq!(refused.class(), Class::Invalid);
    let lenient = Coder::new(Options { license_check: LicenseCheck::ClaimsOnly, ..options() });
    owner(&lenient).await.add_license(&license).await.unwrap();
}

#[tokio::test]
async fn list_of_a_thousand_groups_is_fast() {
    let coder = unlimited();
    let owner = owner(&coder).await.waiting_up_to(std::time::Duration::from_hours(1));
    let organization = owner.list_organizations().await.unwrap()[0].id;
    let mut state = coder.state();
    let everyone = state.groups[&organization].clone();
    for number in 1..=1000_u128 {
        let id = Uuid::from_u128(number << 64);
        let members = state.users.keys().copied().collect();
        let group = sim::state::Group { id, name: format!("group-{number}"), members, ..everyone.clone() };
        state.groups.insert(id, group);
    }
    let full = Coder::with_state(Options { rate_limit: None, ..options() }, state);
    let session = client(&full).login("owner@sim.test", &SecretString::from(PASSWORD)).await.unwrap();
    let owner = client(&full).with_token(session).unwrap();
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(owner.list_groups(organization).await.unwrap().len(), 1001);
    }
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}
