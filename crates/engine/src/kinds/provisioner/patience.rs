//! How long the deletion of a provisioner waits: for its pods, for the API server, and for coderd. Pure.

use std::time::Duration;

use api::CoderProvisioner;
use k8s_openapi::api::core::v1::Pod;

use crate::pipeline::cleanup::{DEADLINE, LAST_TRIES};

/// Beyond their grace period pods are not waited for.
const BEYOND_GRACE: Duration = Duration::from_mins(1);

/// How long a deletion waits, from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    pub pods: Duration,
    /// For an API server that does not delete the daemons.
    pub cluster: Duration,
    pub coderd: Duration,
}

impl Patience {
    /// For pods with this grace period, in seconds.
    pub fn of(grace: i64) -> Self {
        let pods = Duration::from_secs(u64::try_from(grace).unwrap_or_default()) + BEYOND_GRACE;
        let cluster = pods.max(DEADLINE.saturating_sub(LAST_TRIES));
        Self { pods, cluster, coderd: cluster + LAST_TRIES }
    }

    /// How long the whole deletion of a provisioner may take.
    pub fn in_all(provisioner: &CoderProvisioner) -> Duration {
        Self::of(longest_grace(provisioner, &[])).coderd + BEYOND_GRACE
    }
}

/// The longest grace period, in seconds: what is declared, that of the pods, and that of pods that are gone.
pub fn longest_grace(provisioner: &CoderProvisioner, pods: &[Pod]) -> i64 {
    let of_pods = pods.iter().filter_map(|it| it.spec.as_ref()?.termination_grace_period_seconds);
    let known = provisioner.status.as_ref().and_then(|it| it.termination_grace_period_seconds);
    of_pods.chain(known).fold(provisioner.spec.termination_grace_period(), i64::max)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn provisioner(declared: i64, status: &Value) -> CoderProvisioner {
        let spec = json!({"controlPlaneRef": {"name": "main"}, "terminationGracePeriodSeconds": declared});
        let object = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "alpha"}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn pods_are_waited_for_as_long_as_their_grace_period_whatever_is_declared_by_now() {
        let pod = |grace: i64| -> Pod {
            let spec = json!({"containers": [], "terminationGracePeriodSeconds": grace});
            serde_json::from_value(json!({"metadata": {"name": "pod"}, "spec": spec})).unwrap()
        };
        let none = json!({});
        assert_eq!(longest_grace(&provisioner(5, &none), &[pod(30), pod(3600), pod(60)]), 3600);
        assert_eq!(longest_grace(&provisioner(600, &none), &[pod(5)]), 600);
        // They are gone, and coderd does not answer.
        let known = json!({"terminationGracePeriodSeconds": 3600});
        assert_eq!(longest_grace(&provisioner(5, &known), &[]), 3600);
        let hour = Duration::from_hours(1);
        assert_eq!(Patience::of(3600).pods, hour + BEYOND_GRACE);
        assert_eq!(Patience::of(3600).cluster, hour + BEYOND_GRACE);
        assert_eq!(Patience::of(3600).coderd, hour + BEYOND_GRACE + LAST_TRIES);
        assert_eq!(Patience::of(5).coderd, DEADLINE);
        assert_eq!(
            Patience::of(5).cluster,
            DEADLINE.saturating_sub(LAST_TRIES),
            "time is left to revoke the key"
        );
        assert!(Patience::in_all(&provisioner(5, &known)) > Patience::of(3600).coderd);
    }
}
