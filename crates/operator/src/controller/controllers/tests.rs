use kube::runtime::controller::Action;
use tokio::sync::Notify;

use super::*;
use crate::controller::about::About;

fn controllers(controllers: Vec<(KindName, Controller)>) -> Controllers {
    let stop = CancellationToken::new();
    let reconciles = Arc::new(Reconciles::new(Arc::default(), Arc::default(), stop.clone()));
    Controllers::of(controllers, reconciles, stop)
}

fn named(
    kind: &'static str,
    controller: impl Future<Output = ()> + Send + 'static,
) -> (KindName, Controller) {
    (KindName::Borrowed(kind), Box::pin(controller))
}

#[tokio::test]
async fn a_controller_that_ends_by_itself_is_noticed() {
    let mut controllers = controllers(vec![
        named("CoderGroup", std::future::pending()),
        named("CoderRole", std::future::ready(())),
    ]);
    assert!(
        controllers.failed().await.to_string().contains("the controller of CoderRole stopped unexpectedly")
    );
}

#[tokio::test]
async fn a_controller_that_panics_is_noticed_without_its_words() {
    let mut controllers = controllers(vec![
        named("CoderGroup", async { unreachable!("hunter2") }),
        named("CoderRole", std::future::pending()),
    ]);
    let told = controllers.failed().await.to_string();
    assert!(told.contains("the controller of CoderGroup panicked") && !told.contains("hunter2"), "{told}");
}

#[tokio::test]
async fn controllers_that_run_are_left_alone() {
    let mut controllers = controllers(vec![named("CoderGroup", std::future::pending())]);
    let mut failed = std::pin::pin!(controllers.failed());
    assert!(futures::poll!(&mut failed).is_pending());
}

/// Time stands still: whoever waited for it would never end.
#[tokio::test(start_paused = true)]
async fn the_end_comes_at_once_when_nothing_is_under_way_though_a_controller_never_hears_of_it() {
    let started = tokio::time::Instant::now();
    controllers(vec![named("CoderGroup", std::future::pending())]).end().await;
    assert!(started.elapsed().is_zero());
}

fn about() -> About {
    About {
        kind: KindName::Borrowed("CoderGroup"),
        namespace: String::new(),
        name: String::new(),
        uid: String::new(),
        generation: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_pass_and_cuts_off_one_that_takes_too_long() {
    for (takes, expected) in [(3, 3), (300, 10)] {
        let controllers = controllers(vec![named("CoderGroup", std::future::pending())]);
        let (begun, reconciles) = (Arc::new(Notify::new()), Arc::clone(&controllers.reconciles));
        let told = Arc::clone(&begun);
        tokio::spawn(async move {
            let work = async {
                told.notify_one();
                tokio::time::sleep(Duration::from_secs(takes)).await;
                Ok(Action::await_change())
            };
            reconciles.over(&about(), work).await
        });
        begun.notified().await;
        let started = tokio::time::Instant::now();
        controllers.end().await;
        assert_eq!(started.elapsed().as_secs(), expected);
    }
}
