//! The licences of a control plane that is deleted.

use api::Reason;
use jiff::Timestamp;

use super::{LicenseEffect, LicenseRecord, Observed, Uploaded, apply::apply, plan::plan_cleanup};
use crate::{
    coder::{Coder, Promises},
    kinds::control_plane::identity::ReachedDeployment,
    pipeline::{
        cleanup::{Cleanup, CleanupFailure},
        ledger::Entry,
        outcome::{Blocked, Trouble},
    },
};

/// Deletes the licences that we installed, each by itself.
pub async fn delete(
    record: LicenseRecord,
    reached: Result<ReachedDeployment<'_>, &CleanupFailure>,
    cleanup: &mut Cleanup,
    now: Timestamp,
) {
    let reached = match reached {
        Ok(reached) => reached,
        Err(failure) => return cleanup.fail(named(&record), failure.clone()),
    };
    let ReachedDeployment { client, deployment } = reached;
    if record.deployment_id.is_some_and(|it| it != deployment) {
        let message = "another deployment answers there now".to_owned();
        return cleanup.fail(named(&record), Blocked { reason: Reason::DeploymentChanged, message });
    }
    let read = async {
        reached.check_same().await?;
        Ok::<_, Trouble>(client.list_licenses().await?)
    };
    let live = match read.await {
        Ok(live) => live,
        Err(trouble) => return cleanup.fail(named(&record), trouble),
    };
    let coder = Coder::new(client.clone(), Promises::default());
    let mut record = record.settled(deployment, &[], &live, true);
    let observed = Observed { deployment, live: &live, record: &record.clone(), errors: &[], now };
    for step in plan_cleanup(&observed, true).steps {
        if let Err(trouble) = apply(&step.effect, &[], &coder, &mut record).await
            && let LicenseEffect::Delete { id, .. } = &step.effect
        {
            cleanup.fail(format!("licence {id}"), trouble);
        }
    }
}

/// The licences of a record as an entry of the ledger, by the ids that Coder has given them. `None` where there are none.
pub fn entry(record: &LicenseRecord) -> Option<Entry> {
    let name = |it: &Uploaded| it.id.map_or_else(|| format!("of {}", it.slot), |id| id.to_string());
    let names: Vec<String> = record.uploaded.iter().map(name).collect();
    (!names.is_empty()).then_some(Entry::Licenses(names))
}

fn named(record: &LicenseRecord) -> String {
    entry(record).map(|it| it.name()).unwrap_or_default()
}
