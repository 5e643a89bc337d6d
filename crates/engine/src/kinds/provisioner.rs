//! `CoderProvisioner`: external provisioner daemons, with their key and the objects that run them.
//!
//! [`reach`] finds control plane and organization, and [`gate`] decides whether the deployment may have daemons. [`observed`] reads, [`plan`]
//! decides and [`carry_out`] does. [`children`] are the objects that the manifest declares, [`daemons`] counts the daemons that coderd sees, and
//! [`status`] is what is reported. The life of the key is that of every other one ([`secrets`](crate::secrets)).

mod carry_out;
pub mod children;
mod compared;
pub mod daemons;
pub mod gate;
mod keeper;
pub mod keys;
pub mod ledger;
pub mod names;
mod observed;
pub mod patience;
mod plan;
pub mod reach;
pub mod status;
mod work;

use std::time::Duration;

use api::{
    CoderControlPlane, CoderProvisioner, ProvisionerKeyState, Reason,
    condition::{PROVISIONER_KEY, PROVISIONER_KEY_SECRET},
};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::{
    observed::Observed,
    reach::{Unreached, key_failed},
    status::Findings,
    work::{Effect, What},
};
use crate::{
    coder::Coder,
    kind::{Aside, Carried, Kind, Round, Runner},
    kinds::control_plane::version,
    objects::Keeper as _,
    pipeline::{
        conditions::Truth,
        decide::Contact,
        ledger::Ledger,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Plan, Step},
        reference::Ref,
    },
    ports::{Cluster, ClusterError, object::Live},
    secrets::{
        Holder, Names, SecretPlace, Verified,
        holders::KeyHolder,
        mirror::{self, of_status, to_status},
    },
};

/// How soon the next reconcile of a provisioner with a retiring key comes: no watch shows when the last pod with that key is gone.
const SOON: Duration = Duration::from_secs(5);

/// External provisioner daemons.
#[derive(Debug)]
pub struct Provisioner;

impl Kind for Provisioner {
    type Manifest = CoderProvisioner;
    type Desired = CoderProvisioner;
    type Observed = Observed;
    type Effect = Effect;

    /// After the organizations that the keys are for.
    const RANK: u8 = 4;
    const SHOWS_ID: bool = false;
    const HAS_SECRETS: bool = true;
    const OWNS_OBJECTS: bool = true;
    const RUNNER: Runner = Runner::Controller;

    fn target(provisioner: &CoderProvisioner) -> String {
        names::target(provisioner)
    }

    fn desire(provisioner: &CoderProvisioner) -> Result<CoderProvisioner, Invalid> {
        Names::check(provisioner.key_name()).map_err(|message| Invalid::new("spec.key.name", message))?;
        Ok(provisioner.clone())
    }

    fn ledger(provisioner: &CoderProvisioner) -> Ledger {
        ledger::ledger(provisioner)
    }

    fn is_unrecorded(provisioner: &CoderProvisioner) -> bool {
        keys::recorded(provisioner).names().next().is_none()
    }

    fn intends(effect: &Effect) -> Map<String, Value> {
        let What::Key { work, needs_approval: true, .. } = &effect.what else { return Map::new() };
        let known = effect.manifest.status.as_ref().map(|it| it.key.clone()).unwrap_or_default();
        work.begins.as_ref().map(|it| mirror::changed(&known, &to_status(it))).unwrap_or_default()
    }

    async fn observe(
        provisioner: &CoderProvisioner,
        _held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<Observed, Trouble> {
        Box::pin(observed::observe(provisioner, coder)).await
    }

    fn waits(observed: &Observed) -> Option<Outcome> {
        if observed.unlicensed.is_some() {
            return None;
        }
        let known = observed.known.as_ref();
        let unplanned = known.and_then(|it| it.unplanned.clone()).filter(|_| !observed.is_reported);
        let is_all = || known.is_none() || plan::plan(observed).is_empty();
        let trouble = observed.trouble.clone().filter(|_| is_all()).or_else(|| unplanned.map(Trouble::from));
        trouble.map(Outcome::from)
    }

    fn is_default(_: &Observed) -> bool {
        false
    }

    fn contact(observed: &Observed, _held: Option<Uuid>) -> Contact {
        // Keys and objects of others are refused one by one. A plan that is held back is a difference, also where nothing is there yet.
        let is_absent = observed.is_new() && observed.manifest.spec.changes.is_automatic();
        if is_absent { Contact::Absent } else { Contact::Held }
    }

    fn id(_: &Observed) -> Option<Uuid> {
        None
    }

    fn unmanaged(observed: &Observed) -> Option<Blocked> {
        let refused = observed.known.as_ref().and_then(|it| it.work.refused());
        // The status has a condition for it.
        refused.filter(|_| !observed.is_reported)
    }

    fn aside(observed: &Observed) -> Aside {
        let Observed { manifest, findings, known, .. } = observed;
        let Some(known) = known else { return findings.aside(manifest, None) };
        let now = known.now();
        let mut aside = findings.aside(manifest, now.is_settled.then_some(&now.rest.record));
        let verified = manifest.status.as_ref().and_then(|it| it.secret_version.as_ref());
        if let Some(version) = known.secret_version.as_ref().filter(|it| verified != Some(it)) {
            aside.along.insert("secretVersion".to_owned(), json!(version));
        }
        aside.again_at = now.rest.again_at;
        aside.within = now.rest.is_rotating().then_some(SOON);
        aside
    }

    fn plan(_: &CoderProvisioner, observed: &Observed) -> Plan<Effect> {
        plan::plan(observed)
    }

    fn round(_: &CoderProvisioner, observed: &Observed) -> Round {
        let waits = if observed.unlicensed.is_some() {
            observed.trouble.clone().map(Trouble::into_blocked)
        } else if observed.is_reported {
            observed.findings.trouble()
        } else {
            let known = observed.known.as_ref();
            known.and_then(|it| it.key.rest.key.clone().err()).or_else(|| observed.findings.stopped.clone())
        };
        Round { steps: None, waits }
    }

    fn plan_deletion(_: &Observed) -> Plan<Effect> {
        Plan::empty()
    }

    /// Fails: [`Self::carry_out`] does the steps of a round together. An effect is not printed, because its manifest has the values of
    /// variables.
    async fn apply(_: &Effect, _: &Coder) -> Result<Option<Uuid>, Trouble> {
        let message = "the steps of a provisioner are carried out together; reconciling again".to_owned();
        Err(Blocked { reason: Reason::Progressing, message }.into())
    }

    async fn carry_out(steps: &[&Step<Effect>], coder: &Coder) -> Carried {
        Box::pin(carry_out::carry_out(steps, coder)).await
    }

    fn conclude(
        provisioner: &CoderProvisioner,
        aside: Option<Aside>,
        condition: Option<&'static str>,
        outcome: &Outcome,
    ) -> Aside {
        // An assessment that stopped before it observed has no conditions.
        let aside = aside.filter(|it| !it.facts.is_empty());
        let mut aside = aside.unwrap_or_else(|| Findings::default().aside(provisioner, None));
        if let Some(why) = stopped_by(outcome) {
            let is_secret = condition == Some(PROVISIONER_KEY) && why.reason.is_about_key_secret();
            let condition = if is_secret { Some(PROVISIONER_KEY_SECRET) } else { condition };
            let why = if condition == Some(PROVISIONER_KEY) { key_failed(why) } else { why };
            for fact in aside.facts.iter_mut().filter(|it| Some(it.condition) == condition) {
                (fact.truth, fact.reason) = (Truth::False, why.reason);
                fact.message.clone_from(&why.message);
            }
        }
        if let Outcome::Failed(Trouble::Cluster(_)) = outcome {
            // Only the record of the keys is written then: everything else is said together with the conditions.
            aside.status.retain(|field, _| !status::FIELDS.contains(&field.as_str()));
        } else if let Some(phase) = status::phase(provisioner, outcome.is_ready()) {
            aside.status.insert("phase".to_owned(), json!(phase));
        }
        aside
    }

    fn take_over(provisioner: &mut CoderProvisioner, stored: &Live) {
        // The number of daemons that the manifest does not name is an autoscaler's.
        let scaled = stored.object["spec"]["replicas"].as_i64().and_then(|it| i32::try_from(it).ok());
        provisioner.spec.replicas = provisioner.spec.replicas.or(scaled);
    }

    fn refs(provisioner: &CoderProvisioner) -> Vec<Ref> {
        let spec = &provisioner.spec;
        let others = [
            Ref::organization(spec.organization()),
            Ref::ControlPlaneStatus(spec.control_plane_ref.name.clone()),
        ];
        others.into_iter().chain(secrets(provisioner).map(Ref::Secret)).collect()
    }
}

/// Why an outcome is not the declared state, where a step failed.
fn stopped_by(outcome: &Outcome) -> Option<Blocked> {
    match outcome {
        Outcome::Failed(trouble) => Some(trouble.clone().into_blocked()),
        Outcome::Blocked(blocked) => Some(blocked.clone()),
        _ => None,
    }
}

/// What is reported of a provisioner whose control plane cannot be used. Its pods are there all the same.
pub async fn unreached(
    provisioner: &CoderProvisioner,
    unreached: Unreached,
    cluster: &dyn Cluster,
) -> Result<(Aside, Outcome), ClusterError> {
    let mut findings = Findings::default();
    let trouble = unreached.enter(&mut findings);
    observed::enter_pods(provisioner, &mut findings, cluster).await?;
    Ok((findings.aside(provisioner, None), trouble.into()))
}

/// The kinds of the objects that a provisioner has: group, version, kind.
pub const KINDS: [(&str, &str, &str); 4] = [
    ("", "v1", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("apps", "v1", "Deployment"),
];

/// Where the value of the key is, or should be.
pub fn secret(provisioner: &CoderProvisioner) -> SecretPlace {
    let name = provisioner.spec.secret_name();
    SecretPlace {
        name: name.map_or_else(|| names::secret(&provisioner.name_any()), str::to_owned),
        key: provisioner.spec.secret_key().to_owned(),
    }
}

/// The Secrets that have, or had, a credential of a provisioner.
fn secrets(provisioner: &CoderProvisioner) -> impl Iterator<Item = String> + use<> {
    let bootstrap = provisioner.spec.bootstrap.as_ref().map(|it| it.token().0.to_owned());
    let recorded = provisioner.status.as_ref().and_then(|it| it.key.secret_ref.as_ref());
    let recorded = recorded.map(|it| it.name.clone());
    [secret(provisioner).name].into_iter().chain(bootstrap).chain(recorded)
}

impl KeyHolder for CoderProvisioner {
    fn keys(&self) -> Option<&ProvisionerKeyState> {
        self.status.as_ref().map(|it| &it.key)
    }

    fn is_in(&self, secret: &str) -> bool {
        secrets(self).any(|it| it == secret)
    }
}

/// The object that has the keys of a provisioner.
pub fn holder(provisioner: &CoderProvisioner) -> Holder {
    let labels = names::labels(&provisioner.name_any());
    Holder { verified: verified(provisioner), ..Holder::new(provisioner, labels, Some(provisioner.owner())) }
}

/// The Secret in which the value of the key was last verified, by the status.
fn verified(provisioner: &CoderProvisioner) -> Option<Verified> {
    let status = provisioner.status.as_ref()?;
    Some(Verified {
        place: of_status(&status.key, "").secret?,
        version: status.secret_version.clone()?,
        checksum: status.key.provisioner_key_checksum.clone()?,
    })
}

/// The image of the daemons, if they may have it now: a control plane has it first.
pub fn image(provisioner: &CoderProvisioner, plane: &CoderControlPlane) -> Result<String, Blocked> {
    let status = plane.status.as_ref();
    let image = chosen(provisioner, plane);
    if provisioner.spec.image().is_none() && plane.spec.external.is_none() {
        let database = status.and_then(|it| it.database_version.as_deref());
        version::check(&image, database).map_err(|_| Blocked {
            reason: Reason::ControlPlaneNotReady,
            message: format!(
                "control plane {} refuses {image}, and so do its daemons: see its status",
                plane.name_any()
            ),
        })?;
    }
    version::check_daemon(&image, status.and_then(|it| it.version.as_deref()))?;
    Ok(image)
}

/// The declared image, the control plane's, or for one that runs elsewhere the published one of its version.
fn chosen(provisioner: &CoderProvisioner, plane: &CoderControlPlane) -> String {
    if let Some(declared) = provisioner.spec.image() {
        return declared.to_owned();
    }
    if plane.spec.external.is_none() {
        return plane.spec.image().to_owned();
    }
    let version = plane.status.as_ref().and_then(|it| it.version.as_deref());
    // What comes after `+` tells builds apart; no tag has it.
    let tag = version.and_then(|it| it.split('+').next()).filter(|it| it.starts_with('v'));
    api::published_image(tag.unwrap_or("latest"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(declared: &Value, plane: &Value, version: Option<&str>) -> (CoderProvisioner, CoderControlPlane) {
        let provisioner = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": {"name": "a"},
            "spec": {"controlPlaneRef": {"name": "main"}, "image": declared}});
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
            "spec": plane, "status": {"version": version, "databaseVersion": version}});
        (serde_json::from_value(provisioner).unwrap(), serde_json::from_value(plane).unwrap())
    }

    fn of(declared: &Value, plane: &Value, version: Option<&str>) -> Result<String, Blocked> {
        let (provisioner, plane) = pair(declared, plane, version);
        image(&provisioner, &plane)
    }

    #[test]
    fn daemons_have_the_declared_image_or_the_control_planes_or_the_published_one_of_its_build() {
        let ours = json!({"image": "mirror.example.com/coder:v2.36.0"});
        let external =
            json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "t"}}});
        let image = |declared: &Value, plane: &Value, version| of(declared, plane, version).unwrap();
        assert_eq!(image(&json!("own:v1"), &ours, None), "own:v1");
        assert_eq!(image(&Value::Null, &ours, Some("v2.36.0+abc")), "mirror.example.com/coder:v2.36.0");
        let published = api::published_image("v2.36.0");
        assert_eq!(image(&Value::Null, &external, Some("v2.36.0+abc")), published);
        assert_eq!(image(&Value::Null, &external, None), api::published_image("latest"));
    }

    #[test]
    fn daemons_do_not_go_where_their_control_plane_is_not_yet_or_does_not_go() {
        let at = |tag: &str| json!({"image": format!("mirror.example.com/coder:{tag}")});
        for (tag, word) in [("v2.37.0", "is upgraded"), ("v2.35.0", "main refuses")] {
            let held = of(&Value::Null, &at(tag), Some("v2.36.0+abc")).unwrap_err();
            assert_eq!(held.reason, Reason::ControlPlaneNotReady);
            assert!(held.message.contains(word) && held.message.contains(tag), "{}", held.message);
        }
        let older = of(&json!("own:v2.35.0"), &at("v2.36.0"), Some("v2.36.0+abc"));
        assert_eq!(older.as_deref(), Ok("own:v2.35.0"), "a person may say another one");
    }
}
