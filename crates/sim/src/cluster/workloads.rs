//! What becomes of Deployments: the work of the controller manager, the scheduler and the kubelets, up to a time.
//!
//! Each form of a Deployment is a `ReplicaSet` with a revision, each `ReplicaSet` has pods, and a pod is ready a while after it was
//! created. Pods of an earlier form go when all pods of the current one are ready. No pod fails, and nothing limits a rollout.

use std::cmp::Ordering;

use engine::ports::object::Key;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::state::{State, seconds};
use crate::ids::hashed;

/// The annotation that tells the forms of a Deployment apart.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The label that tells the pods of one form from those of others.
const HASH: &str = "pod-template-hash";

impl State {
    /// Brings every Deployment as far as it is by now. Returns when the next pod becomes ready. `None` where none will.
    pub(super) fn settle_workloads(
        &mut self,
        ready_after: SignedDuration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let deployments: Vec<Key> =
            self.objects.keys().filter(|it| it.kind == "Deployment").cloned().collect();
        let next = deployments.iter().filter_map(|it| self.settle(it, ready_after, now));
        next.min()
    }

    fn settle(&mut self, key: &Key, ready_after: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        let deployment = self.objects.get(key)?.clone();
        let set = self.current_set(&deployment, key, now);
        let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
        self.scale(&set, &deployment["spec"]["template"], usize::try_from(wanted).unwrap_or_default(), now);
        let mut next = None;
        for (key, pod) in self.owned_by(&set["metadata"]["uid"], "Pod") {
            let created: Option<Timestamp> =
                pod["metadata"]["creationTimestamp"].as_str().and_then(|it| it.parse().ok());
            let ready_at = created.unwrap_or(now) + ready_after;
            if now < ready_at {
                next = Some(next.map_or(ready_at, |it: Timestamp| it.min(ready_at)));
            }
            let mut pod = pod;
            pod["status"] = pod_status(&pod, now >= ready_at, now);
            self.put(&key, pod, now);
        }
        let current = self.owned_by(&set["metadata"]["uid"], "Pod");
        let ready = current.iter().filter(|(_, it)| is_ready(it)).count();
        let others: Vec<Key> = self.earlier_pods(&deployment, &set);
        if ready >= current.len() {
            for pod in &others {
                self.end(pod, now);
            }
        }
        let left = self.earlier_pods(&deployment, &set).len();
        self.report(key, &set, (current.len(), ready, left), now);
        next
    }

    /// The `ReplicaSet` of the current form, which is created where it is missing.
    fn current_set(&mut self, deployment: &Value, of: &Key, now: Timestamp) -> Value {
        let hash = &hashed(&deployment["spec"]["template"].to_string())[..10];
        let name = format!("{}-{hash}", of.name);
        let key = Key::new("apps/v1", "ReplicaSet", &of.namespace, &name);
        if let Some(set) = self.objects.get(&key) {
            return set.clone();
        }
        let earlier = self.owned_by(&deployment["metadata"]["uid"], "ReplicaSet");
        let revision = |it: &Value| it["metadata"]["annotations"][REVISION].as_str()?.parse::<u64>().ok();
        let revision = earlier.iter().filter_map(|(_, it)| revision(it)).max().unwrap_or_default() + 1;
        let mut labels = deployment["spec"]["template"]["metadata"]["labels"].clone();
        labels[HASH] = json!(hash);
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": of.namespace, "labels": labels,
                "annotations": {(REVISION): revision.to_string()}, "generation": 1,
                "ownerReferences": [owner(deployment)]},
            "spec": {"replicas": deployment["spec"]["replicas"], "selector": deployment["spec"]["selector"]}});
        self.store(&key, set, now)
    }

    /// Creates the pods that are missing, and deletes those that are too many.
    fn scale(&mut self, set: &Value, template: &Value, wanted: usize, now: Timestamp) {
        let pods = self.owned_by(&set["metadata"]["uid"], "Pod");
        match pods.len().cmp(&wanted) {
            Ordering::Equal => {}
            Ordering::Greater => pods[wanted..].iter().for_each(|(key, _)| self.end(key, now)),
            Ordering::Less => {
                for _ in pods.len()..wanted {
                    self.create_pod(set, template, now);
                }
            }
        }
    }

    fn create_pod(&mut self, set: &Value, template: &Value, now: Timestamp) {
        let metadata = &set["metadata"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let suffix = &self.suffix()[..5];
        let (namespace, name) =
            (text(&metadata["namespace"]), format!("{}-{suffix}", text(&metadata["name"])));
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": metadata["labels"],
                "annotations": template["metadata"]["annotations"], "ownerReferences": [owner(set)]},
            "spec": template["spec"]});
        self.store(&Key::new("v1", "Pod", &namespace, &name), pod, now);
    }

    /// The objects of a kind whose controller has that uid.
    fn owned_by(&self, uid: &Value, kind: &str) -> Vec<(Key, Value)> {
        let is_owned = |it: &Value| {
            let owners = it["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.filter(|it| it["controller"] == true).any(|it| it["uid"] == *uid)
        };
        let found = self.objects.iter().filter(|(key, it)| key.kind == kind && is_owned(it));
        found.map(|(key, it)| (key.clone(), it.clone())).collect()
    }

    /// The pods of earlier forms.
    fn earlier_pods(&self, deployment: &Value, current: &Value) -> Vec<Key> {
        let sets = self.owned_by(&deployment["metadata"]["uid"], "ReplicaSet");
        let earlier = sets.iter().filter(|(_, it)| it["metadata"]["uid"] != current["metadata"]["uid"]);
        earlier.flat_map(|(_, it)| self.owned_by(&it["metadata"]["uid"], "Pod")).map(|(key, _)| key).collect()
    }

    /// Writes the status of a Deployment: how many pods are current, how many of these are ready, and how many are not current.
    fn report(
        &mut self,
        key: &Key,
        set: &Value,
        (current, ready, earlier): (usize, usize, usize),
        now: Timestamp,
    ) {
        let Some(mut deployment) = self.objects.get(key).cloned() else { return };
        deployment["metadata"]["annotations"][REVISION] = set["metadata"]["annotations"][REVISION].clone();
        let is_available = ready >= current;
        let condition = |kind: &str, is_true: bool| json!({"type": kind, "status": if is_true { "True" } else { "False" }});
        deployment["status"] = json!({
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": current + earlier,
            "updatedReplicas": current,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": [condition("Available", is_available), condition("Progressing", true)],
        });
        self.put(key, deployment, now);
    }
}

/// A reference to the controller of an object.
fn owner(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// The status of a pod whose containers run. What has not changed keeps its time.
fn pod_status(pod: &Value, is_ready: bool, now: Timestamp) -> Value {
    let word = if is_ready { "True" } else { "False" };
    let before = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut before = before.filter(|it| it["type"] == "Ready" && it["status"] == word);
    let since = before.next().map_or_else(|| seconds(now), |it| it["lastTransitionTime"].clone());
    let container = |it: &Value| {
        let started = &pod["metadata"]["creationTimestamp"];
        json!({"name": it["name"], "image": it["image"], "imageID": "", "ready": is_ready, "restartCount": 0,
            "started": true, "state": {"running": {"startedAt": started}}})
    };
    let containers: Vec<Value> =
        pod["spec"]["containers"].as_array().into_iter().flatten().map(container).collect();
    json!({"phase": "Running", "containerStatuses": containers,
        "conditions": [{"type": "Ready", "status": word, "lastTransitionTime": since}]})
}

#[cfg(test)]
mod tests {
    use engine::ports::Only;

    use super::*;

    fn deployment(image: &str, replicas: u64) -> Value {
        let labels = json!({"app": "a"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "coder", "image": image}]}}}})
    }

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + number).unwrap()
    }

    fn write(state: &mut State, image: &str, replicas: u64) {
        state.write(engine::ports::Write::Apply(&deployment(image, replicas)), second(0)).unwrap();
    }

    /// The counts of the status, and the images of the pods.
    fn shown(state: &State) -> (Value, Vec<Value>) {
        let status = &state.objects[&Key::new("apps/v1", "Deployment", "n", "a")]["status"];
        let pods = state.objects.iter().filter(|(key, _)| key.kind == "Pod");
        let images = pods.map(|(_, it)| it["spec"]["containers"][0]["image"].clone()).collect();
        (json!([status["replicas"], status["updatedReplicas"], status["availableReplicas"]]), images)
    }

    #[test]
    fn deployment_is_ready_when_its_pods_are_old_enough() {
        let (mut state, delay) = (State::new(1), SignedDuration::from_secs(5));
        write(&mut state, "one", 2);
        assert_eq!(state.settle_workloads(delay, second(0)), Some(second(5)));
        assert_eq!(shown(&state), (json!([2, 2, 0]), vec![json!("one"), json!("one")]));
        assert_eq!(state.settle_workloads(delay, second(4)), Some(second(5)));
        assert_eq!(state.settle_workloads(delay, second(5)), None);
        assert_eq!(shown(&state).0, json!([2, 2, 2]));
        let version = state.objects.values().map(|it| it["metadata"]["resourceVersion"].clone());
        let before: Vec<Value> = version.collect();
        state.settle_workloads(delay, second(60));
        let after = state.objects.values().map(|it| it["metadata"]["resourceVersion"].clone());
        assert_eq!(before, after.collect::<Vec<Value>>(), "what is settled is not written again");
    }

    #[test]
    fn earlier_pods_go_when_the_current_ones_are_ready() {
        let (mut state, delay) = (State::new(1), SignedDuration::from_secs(5));
        write(&mut state, "one", 1);
        state.settle_workloads(SignedDuration::ZERO, second(0));
        state.write(engine::ports::Write::Apply(&deployment("two", 1)), second(10)).unwrap();
        state.settle_workloads(delay, second(10));
        let (status, mut images) = shown(&state);
        images.sort_by_key(Value::to_string);
        assert_eq!((status, images), (json!([2, 1, 0]), vec![json!("one"), json!("two")]));
        state.settle_workloads(delay, second(15));
        assert_eq!(shown(&state), (json!([1, 1, 1]), vec![json!("two")]));
        let current = &state.objects[&Key::new("apps/v1", "Deployment", "n", "a")];
        assert_eq!(current["metadata"]["annotations"][REVISION], "2");
        state.write(engine::ports::Write::Apply(&deployment("two", 0)), second(20)).unwrap();
        state.settle_workloads(delay, second(20));
        assert_eq!(shown(&state), (json!([0, 0, 0]), vec![]));
    }

    #[test]
    fn everything_goes_with_its_deployment() {
        let mut state = State::new(1);
        write(&mut state, "one", 2);
        state.settle_workloads(SignedDuration::ZERO, second(0));
        assert_eq!(state.objects.len(), 4);
        let key = Key::new("apps/v1", "Deployment", "n", "a");
        let uid = state.objects[&key]["metadata"]["uid"].as_str().unwrap().to_owned();
        state.delete(&key, Only { uid: &uid, version: None }, second(1)).unwrap();
        assert!(state.objects.is_empty(), "{:?}", state.objects.keys());
    }
}
