//! Whether a control plane can be used: its address answers, is the known deployment, and accepts the credentials.

use std::sync::Arc;

use api::{CoderControlPlane, External, Reason};
use client::{CertificateProblem, Class, Client, Share, deployment::BuildInfo};
use engine::{
    Blocked, Coder, Credentials,
    coder::{
        Promises, address,
        endpoint::{DeclaredOrigin, declared, origin_secrets},
    },
    kinds::control_plane::{
        access::{AccessRights, Account, Acquired, account_token, own_token},
        identity::{ReachedDeployment, check_identity, recorded_deployment},
        operator_token_secret,
    },
};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::{
    controller::Shared,
    planes::{Origin, Plane, Sources, Versions, name_of},
};

/// The client that is known of a control plane, if its whole origin is what is declared now.
pub(in crate::controller) async fn known(plane: &CoderControlPlane, shared: &Shared) -> Option<Arc<Plane>> {
    let name = name_of(plane);
    let known = shared.planes.last_known(&name)?;
    // Read before the values are: a value that changes meanwhile has another version.
    let versions = versions_of(plane, shared);
    if versions.is_some() && known.compared_with() == versions {
        return Some(known);
    }
    let declared = declared(plane, &*shared.cluster).await;
    let origin = declared.origin();
    shared.planes.declare(&name, &origin);
    let known = shared.planes.last_known(&name)?;
    if let Some(versions) = versions.filter(|_| known.is_declared_as(&origin) && declared.endpoint().is_ok())
    {
        known.set_compared_with(versions);
    }
    Some(known)
}

/// The versions of a manifest and of the Secrets that declare its origin. `None` where one of them is not known.
fn versions_of(plane: &CoderControlPlane, shared: &Shared) -> Option<Versions> {
    let namespace = plane.namespace().unwrap_or_default();
    let mut secrets = Vec::new();
    for name in origin_secrets(plane) {
        let found = shared.secrets.watched(&namespace, name)?;
        secrets.push((found.uid.clone()?, found.resource_version.clone()?));
    }
    Some(Versions { manifest: (plane.uid()?, plane.metadata.generation?), secrets })
}

/// A control plane that answers, and is the known deployment.
pub(in crate::controller) struct Answered {
    declared: DeclaredOrigin,
    /// The versions of what was declared, or earlier ones.
    versions: Option<Versions>,
    /// Where it is, without the credentials.
    place: Origin,
    credentials: Credentials,
    /// A client without a token.
    anonymous: Client,
    build: BuildInfo,
}

/// A token, and where it is from.
pub(in crate::controller) enum Entry {
    /// A Secret held it ready-made.
    Given(SecretString),
    /// It was minted for an account whose credentials a Secret holds.
    Minted(SecretString),
    /// It belongs to the operator's own account.
    Own(SecretString),
}

/// A control plane that can be used.
pub(in crate::controller) struct Proved {
    declared: DeclaredOrigin,
    /// The versions of what was declared, or earlier ones.
    versions: Option<Versions>,
    /// Where it is, without the credentials.
    place: Origin,
    pub(in crate::controller) origin: Origin,
    pub(in crate::controller) client: Client,
    pub(in crate::controller) build: BuildInfo,
    /// The token, where a Secret held it ready-made.
    pub(in crate::controller) given: Option<SecretString>,
    /// The Secret with a token of our own.
    pub(in crate::controller) token_secret: Option<String>,
    /// The account that we made for ourselves, where it is us who run it.
    pub(in crate::controller) account: Option<Uuid>,
}

impl Proved {
    /// The deployment that has just answered.
    pub(in crate::controller) fn coder(&self, shared: &Shared) -> Coder {
        let coder = Coder::new(self.client.clone(), Promises::default());
        coder.expecting(self.build.deployment_id).beside(shared.beside())
    }

    pub(in crate::controller) fn into_plane(self, shared: &Shared) -> Plane {
        let Self { declared, versions, place, origin, client, build, .. } = self;
        let made_from = Sources { declared, place, origin };
        let plane = Plane::new(made_from, &client, build.deployment_id, shared.around());
        if let Some(versions) = versions {
            plane.set_compared_with(versions);
        }
        plane
    }
}

/// Whether the address answers, is the known deployment, and takes the credentials, for a deletion, which must get in. There is no plan,
/// so that accounts are created and deleted only where no approval is needed.
pub(in crate::controller) async fn prove(
    plane: &CoderControlPlane,
    shared: &Shared,
) -> Result<Proved, Blocked> {
    let answered = answer(plane, shared).await?;
    let (reached, context) = (answered.reached(), shared.access_context());
    let entry = match &answered.credentials {
        Credentials::Token(token) => Entry::Given(token.clone()),
        Credentials::Account { email, password } => {
            let account = Account { email: email.clone(), password: password.clone() };
            Entry::Minted(with_warning(account_token(plane, reached, &account, &context).await?))
        }
        Credentials::Ours => {
            let rights = AccessRights::of(plane);
            Entry::Own(with_warning(Box::pin(own_token(plane, reached, rights, &context)).await?))
        }
    };
    answered.enter(plane, entry, shared).await
}

/// Whether the address answers, and is the known deployment. No credentials are sent.
pub(in crate::controller) async fn answer(
    plane: &CoderControlPlane,
    shared: &Shared,
) -> Result<Answered, Blocked> {
    let versions = versions_of(plane, shared);
    let declared = declared(plane, &*shared.cluster).await;
    let (name, origin_now) = (name_of(plane), declared.origin());
    shared.planes.declare(&name, &origin_now);
    let endpoint = declared.endpoint()?;
    check_address(&endpoint.url, shared)?;
    let place = Origin::new(&[endpoint.url.as_str().as_bytes(), endpoint.authority()]);
    // Asked without a token: who answers has to be known before anything secret is sent.
    let anonymous = match shared.planes.client(&name, &place) {
        Some(client) => client,
        None => shared.reach(&endpoint)?.observed_by(shared.metrics.observer(&name)),
    };
    let anonymous = anonymous.guarded_by(Arc::new(shared.fence.clone()));
    let build = anonymous.build_info().await.map_err(|it| with_hint(&it, plane))?;
    shared.planes.answers_as(&name, build.deployment_id);
    check_identity(plane, recorded_deployment(plane), build.deployment_id)?;
    let credentials = endpoint.credentials.clone();
    Ok(Answered { declared: origin_now, versions, place, credentials, anonymous, build })
}

impl Answered {
    /// Whether the operator runs the deployment, and has an account of its own in it.
    pub(in crate::controller) fn is_managed(&self) -> bool {
        matches!(self.credentials, Credentials::Ours)
    }

    /// The token that a Secret holds ready-made. `None` where tokens are minted.
    pub(in crate::controller) fn given(&self) -> Option<&SecretString> {
        if let Credentials::Token(token) = &self.credentials { Some(token) } else { None }
    }

    /// The deployment, without a token and with what one is minted with.
    pub(in crate::controller) fn coder(&self, shared: &Shared) -> Coder {
        let coder = Coder::new(self.anonymous.clone(), Promises::default());
        let coder = coder.expecting(self.build.deployment_id).beside(shared.beside());
        coder.with_credentials(self.credentials.clone())
    }

    fn reached(&self) -> ReachedDeployment<'_> {
        ReachedDeployment { client: &self.anonymous, deployment: self.build.deployment_id }
    }

    /// Whether the deployment takes the token.
    pub(in crate::controller) async fn enter(
        self,
        plane: &CoderControlPlane,
        entry: Entry,
        shared: &Shared,
    ) -> Result<Proved, Blocked> {
        let Self { declared, versions, place, anonymous, build, .. } = self;
        let (Entry::Given(token) | Entry::Minted(token) | Entry::Own(token)) = &entry;
        let origin = place.with(token.expose_secret().as_bytes());
        let client = anonymous
            .with_token(token.clone())
            .map_err(|error| Blocked { reason: Reason::Unauthorized, message: error.to_string() })?;
        let user = client.current_user().await.map_err(|error| {
            if error.class() == Class::SignedOut {
                // A token of the operator that is not taken any more is replaced at the next reconcile.
                shared.planes.tokens.set_minted(&name_of(plane), None);
            }
            remote(&error)
        })?;
        let is_own_account = matches!(entry, Entry::Own(_));
        let account = is_own_account.then_some(user.id);
        let limiter = shared.planes.rate_limiter(build.deployment_id, user.id);
        let share = if is_own_account { Share::OwnAccount } else { Share::Supplied };
        let client = client.with_share(share).with_rate_limiter(limiter);
        let given = if let Entry::Given(token) = entry { Some(token) } else { None };
        let token_secret = given.is_none().then(|| operator_token_secret(plane));
        Ok(Proved { declared, versions, place, origin, client, build, given, token_secret, account })
    }
}

/// The token, once the log has what did not work.
fn with_warning(acquired: Acquired) -> SecretString {
    if let Some(Blocked { reason, message }) = acquired.warning {
        tracing::warn!(%reason, "{message}");
    }
    acquired.token
}

/// What coderd said, as what has to come first.
fn remote(error: &client::Error) -> Blocked {
    Blocked { reason: engine::pipeline::outcome::reason_of(error.class()), message: error.words() }
}

/// Refuses an address that the operator does not connect to. What a name resolves to is checked when it is connected to.
pub(in crate::controller) fn check_address(url: &url::Url, shared: &Shared) -> Result<(), Blocked> {
    shared.addresses.check_url(url).map_err(|why| Blocked {
        reason: Reason::AddressNotAllowed,
        message: format!(
            "the operator does not connect to {}: {why}; use another address, or start the operator with \
             --allow-local-addresses",
            url.host_str().unwrap_or_default()
        ),
    })
}

/// What coderd said, with what to do about a certificate that is not trusted.
fn with_hint(error: &client::Error, plane: &CoderControlPlane) -> Blocked {
    let mut waiting = remote(error);
    let Some(problem) = error.certificate() else { return waiting };
    let hint = match (plane.spec.external.as_ref().map(External::ca), problem) {
        (Some(Some((secret, key))), _) => format!(
            "; neither the usual authorities nor those under {key} in Secret {secret} have signed it: put the \
             certificate of the authority that has into that Secret"
        ),
        (Some(None), _) => {
            "; put the authority's certificate into a Secret and name it in spec.external.caSecretRef"
                .to_owned()
        }
        (None, CertificateProblem::OtherNames) => format!(
            "; no certificate of spec.tls is for the Service {}, which is where the operator sends its token: add that name \
             to a certificate, or a Secret with a certificate for that name to spec.tls.secretNames",
            address::host(plane)
        ),
        (None, CertificateProblem::Untrusted) => format!(
            "; put the certificate of the authority that has signed the certificate for {} under ca.crt into the Secret of \
             that certificate (spec.tls.secretNames: {})",
            address::host(plane),
            plane.spec.tls_secrets().join(", ")
        ),
    };
    waiting.message.push_str(&hint);
    waiting
}
