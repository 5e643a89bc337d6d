//! Security contexts that pass the Pod Security level `restricted`, around what a person says.
//!
//! What a person sets is kept as it is, at the level where it is set. What is left out is made safe, unless that would contradict
//! what is set: an explicit root user cannot also be no root user.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

const ROOT: i64 = 0;

/// What concerns all containers: who runs them and which system calls they have. A container's own value is above the
/// pod's, so where it has one nothing is added here.
pub(crate) fn pod(
    declared: Option<&PodSecurityContext>,
    container: Option<&SecurityContext>,
) -> PodSecurityContext {
    let mut context = declared.cloned().unwrap_or_default();
    let user = container.and_then(|it| it.run_as_user).or(context.run_as_user);
    let is_said =
        context.run_as_non_root.is_some() || container.is_some_and(|it| it.run_as_non_root.is_some());
    if !is_said && user != Some(ROOT) && !is_privileged(container) {
        context.run_as_non_root = Some(true);
    }
    let is_said =
        context.seccomp_profile.is_some() || container.is_some_and(|it| it.seccomp_profile.is_some());
    if !is_said && !is_privileged(container) {
        context.seccomp_profile =
            Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() });
    }
    context
}

/// What only a container can say: how it may gain rights.
pub(crate) fn container(declared: Option<&SecurityContext>) -> SecurityContext {
    let mut context = declared.cloned().unwrap_or_default();
    let added = context.capabilities.iter().flat_map(|it| it.add.iter().flatten());
    // The API server refuses the two together.
    let adds_rights = is_privileged(declared) || added.into_iter().any(|it| it.ends_with("SYS_ADMIN"));
    if context.allow_privilege_escalation.is_none() && !adds_rights {
        context.allow_privilege_escalation = Some(false);
    }
    if context.capabilities.is_none() && !is_privileged(declared) {
        context.capabilities = Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None });
    }
    context
}

fn is_privileged(context: Option<&SecurityContext>) -> bool {
    context.and_then(|it| it.privileged).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn harden(pod_context: Value, container_context: Value) -> (Value, Value) {
        let pod_context: PodSecurityContext = serde_json::from_value(pod_context).unwrap();
        let container_context: SecurityContext = serde_json::from_value(container_context).unwrap();
        (
            serde_json::to_value(pod(Some(&pod_context), Some(&container_context))).unwrap(),
            serde_json::to_value(container(Some(&container_context))).unwrap(),
        )
    }

    #[test]
    fn what_nobody_sets_is_restricted() {
        let seccomp = json!({"type": "RuntimeDefault"});
        let (pod, container) = harden(json!({}), json!({}));
        assert_eq!(pod, json!({"runAsNonRoot": true, "seccompProfile": seccomp}));
        assert_eq!(container, json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}));
    }

    #[test]
    fn what_a_person_sets_is_kept_at_its_level() {
        let profile = json!({"type": "Localhost", "localhostProfile": "coder.json"});
        let own = json!({"runAsNonRoot": true, "seccompProfile": profile, "allowPrivilegeEscalation": true,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}, "readOnlyRootFilesystem": true});
        let (pod, container) = harden(json!({"fsGroup": 1000}), own.clone());
        assert_eq!(pod, json!({"fsGroup": 1000}), "a pod that is hardened already is not replaced");
        assert_eq!(container, own);
    }

    #[test]
    fn nothing_contradicts_what_a_person_sets() {
        let seccomp = json!({"type": "RuntimeDefault"});
        for (pod_context, own) in [(json!({"runAsUser": 0}), json!({})), (json!({}), json!({"runAsUser": 0}))]
        {
            let (pod, _) = harden(pod_context, own);
            assert_eq!((pod.get("runAsNonRoot"), pod.get("seccompProfile")), (None, Some(&seccomp)));
        }
        assert_eq!(harden(json!({"runAsUser": 0}), json!({"runAsUser": 1000})).0["runAsNonRoot"], true);
        assert_eq!(harden(json!({}), json!({"privileged": true})), (json!({}), json!({"privileged": true})));
        let (_, container) = harden(json!({}), json!({"capabilities": {"add": ["SYS_ADMIN"]}}));
        assert_eq!(container, json!({"capabilities": {"add": ["SYS_ADMIN"]}}));
    }
}
