use client::routes::ROUTES;
use tokio::sync::Notify;

use client::routes::Route;

use super::*;
use crate::sent::sends;

fn about() -> About {
    About {
        kind: KindName::Borrowed("CoderGroup"),
        namespace: "platform".to_owned(),
        name: "developers".to_owned(),
        uid: "u".to_owned(),
        generation: Some(1),
    }
}

fn reconciles() -> Arc<Reconciles> {
    Arc::new(Reconciles::new(Arc::default(), Arc::default(), CancellationToken::new()))
}

fn done() -> Action {
    Action::requeue(Duration::from_mins(5))
}

fn route(method: &str) -> &'static Route {
    ROUTES.iter().find(|it| it.method().as_str() == method).unwrap()
}

#[track_caller]
fn counted(reconciles: &Reconciles, reason: &str, count: u32) {
    let text = reconciles.metrics.text().unwrap();
    let line = format!("reconciles_total{{kind=\"CoderGroup\",reason=\"{reason}\"}} {count}");
    assert!(text.contains(&line), "{line} is not in:\n{text}");
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_only_reads_is_cut_at_the_deadline_and_retried_later_each_time() {
    let reconciles = reconciles();
    let started = Instant::now();
    let reads = || async {
        sends(route("GET"));
        std::future::pending().await
    };
    let first = reconciles.over(&about(), reads()).await;
    assert_eq!(started.elapsed().as_secs(), 60);
    let second = reconciles.over(&about(), reads()).await;
    counted(&reconciles, "Deadline", 2);
    let after = Memory::default();
    assert_eq!(first, Action::requeue(after.after_cut(&about())));
    assert_eq!(second, Action::requeue(after.after_cut(&about())));
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_has_begun_to_change_something_is_never_cut() {
    let reconciles = reconciles();
    for method in ["POST", "PATCH", "PUT", "DELETE"] {
        let recorded = Arc::new(AtomicBool::new(false));
        let record = Arc::clone(&recorded);
        let writes = async move {
            sends(route(method));
            tokio::time::sleep(DEADLINE * 2).await;
            record.store(true, Ordering::Relaxed);
            Ok(done())
        };
        assert_eq!(reconciles.over(&about(), writes).await, done());
        assert!(recorded.load(Ordering::Relaxed), "{method}: the id was not recorded");
    }
    assert!(!reconciles.metrics.text().unwrap().contains("Deadline"));
}

#[tokio::test(start_paused = true)]
async fn what_one_pass_sends_does_not_protect_another() {
    let reconciles = reconciles();
    let (begun, reads) = (Arc::new(Notify::new()), Arc::clone(&reconciles));
    let told = Arc::clone(&begun);
    let reader = tokio::spawn(async move {
        let work = async {
            told.notify_one();
            std::future::pending().await
        };
        reads.over(&about(), work).await
    });
    begun.notified().await;
    let writes = async {
        sends(route("POST"));
        Ok(done())
    };
    reconciles.over(&about(), writes).await;
    assert_ne!(reader.await.unwrap(), done());
    counted(&reconciles, "Deadline", 1);
}

#[tokio::test]
async fn a_panic_ends_one_pass_and_is_retried() {
    let reconciles = reconciles();
    let panics = async { unreachable!("a mistake") };
    let again = reconciles.over(&about(), panics).await;
    assert_eq!(again, Action::requeue(Memory::default().after_cut(&about())));
    counted(&reconciles, "Panic", 1);
    assert_eq!(reconciles.over(&about(), async { Ok(done()) }).await, done());
    assert_eq!(reconciles.count(), 0);
}

#[tokio::test]
async fn errors_of_the_cluster_are_retried_with_back_off_until_a_pass_ends_well() {
    let reconciles = reconciles();
    let fails = || async { Err(ClusterError::NoAnswer("refused".to_owned())) };
    let first = reconciles.over(&about(), fails()).await;
    assert_ne!(reconciles.over(&about(), fails()).await, first);
    counted(&reconciles, "ClusterError", 2);
    reconciles.over(&about(), async { Ok(done()) }).await;
    assert_eq!(reconciles.over(&about(), fails()).await, first);
}

#[tokio::test]
async fn after_a_stop_no_pass_begins_and_those_under_way_are_waited_for() {
    let reconciles = reconciles();
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits, runs) = (Arc::clone(&begun), Arc::clone(&may_end), Arc::clone(&reconciles));
    let under_way = tokio::spawn(async move {
        let work = async {
            told.notify_one();
            waits.notified().await;
            Ok(done())
        };
        runs.over(&about(), work).await
    });
    begun.notified().await;
    reconciles.stop.cancel();
    let late = async { unreachable!("it began") };
    assert_eq!(reconciles.over(&about(), late).await, Action::await_change());
    let ended = reconciles.all_ended();
    let mut ended = std::pin::pin!(ended);
    assert!(futures::poll!(&mut ended).is_pending(), "one is under way");
    may_end.notify_one();
    ended.await;
    assert_eq!(under_way.await.unwrap(), done());
}

#[tokio::test]
async fn who_waits_for_a_turn_when_the_end_comes_does_not_begin() {
    let (reconciles, plane) = (reconciles(), ("platform".to_owned(), "main".to_owned()));
    let mut taken = Vec::new();
    let kind = about().kind;
    let waits = loop {
        let mut turn = Box::pin(reconciles.turn(kind.clone(), Some(&plane)));
        match futures::poll!(&mut turn) {
            std::task::Poll::Ready(turn) => taken.push(turn),
            std::task::Poll::Pending => break turn,
        }
    };
    let text = reconciles.metrics.text().unwrap();
    assert!(text.contains("reconciles_waiting{kind=\"CoderGroup\"} 1"), "{text}");
    assert!(reconciles.turn(kind.clone(), None).await.is_some(), "who needs no turn does not wait");
    reconciles.stop.cancel();
    assert!(waits.await.is_none());
    reconciles.all_ended().await;
}

#[tokio::test]
async fn a_pass_is_over_the_object_as_it_is_when_its_turn_comes() {
    let outside = crate::controller::Outside {
        cluster: Arc::new(sim::MemoryCluster::new(Arc::new(jiff::Timestamp::now), 1)),
        connect: Arc::new(|_| Err("nowhere".to_owned())),
        fence: crate::cluster::fence::Fence::open(),
    };
    let shared = Shared::new(outside, crate::controller::Limits::default(), Arc::default());
    let group = |generation: i64| {
        let manifest = serde_json::json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
            "metadata": {"name": "a", "namespace": "b", "generation": generation},
            "spec": {"controlPlaneRef": {"name": "main"}}});
        serde_json::from_value::<api::CoderGroup>(manifest).unwrap()
    };
    let (objects, mut writer) = kube::runtime::reflector::store();
    let target = || Target { object: Arc::new(group(1)), objects: objects.clone(), plane: None };
    let look = |it: Arc<api::CoderGroup>, _: Wake| async move {
        assert_eq!(it.metadata.generation, Some(2));
        Ok(done())
    };
    writer.apply_watcher_event(&kube::runtime::watcher::Event::Apply(group(2)));
    let ended = over(Arc::clone(&shared), target(), look).await.unwrap();
    assert_eq!(ended, done());
    writer.apply_watcher_event(&kube::runtime::watcher::Event::Delete(group(2)));
    let gone = over(shared, target(), look).await.unwrap();
    assert_eq!(gone, Action::await_change(), "what is gone is not looked at");
}
