//! Operators that die at any moment, and two of them at once: it ends with one key, and none is lost on the way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        licensed,
        operator::Operator,
        proxy::{Mood, Proxy},
        stage::{LIMIT, Stage},
    },
    scene::{Scene, idle, is_settled},
};

/// The same moments again: give it the number that a failed run has printed.
const SEED: &str = "CRASH_SEED";
const DEATHS: usize = 30;
/// Far longer than it takes an operator to begin with what there is to do; only one that has nothing to do lives so long.
const LIFE: Duration = Duration::from_secs(20);

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    #[expect(clippy::print_stderr, reason = "whoever wants to see it again needs the seed")]
    fn new() -> Self {
        let given = std::env::var(SEED).ok().and_then(|it| it.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos())
        });
        eprintln!("{SEED}={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

impl Scene {
    /// Ends the operator as the kernel does, and starts another one.
    fn next_operator(&mut self) {
        self.stage.operator.tell("-KILL");
        self.stage.operator = Operator::start(&self.stage.namespace, &[]);
    }
}

/// Waits until the operator has begun with a key, or let one go; a while at most.
async fn begins(operator: &Operator) {
    let since = Instant::now();
    let has_begun = |it: &Value| it["message"].as_str().is_some_and(|it| it.starts_with("provisioner key "));
    while since.elapsed() < LIFE && !operator.said().iter().any(has_begun) {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_operator_may_die_at_any_moment_and_no_key_is_lost() {
    let mut dice = Dice::new();
    let mut scene = Scene::new().await;
    let mut under_way = 0;
    for death in 0..DEATHS {
        match death % 10 {
            0 => scene.stage.apply(&idle(&json!({}))).await,
            9 => scene.stage.delete("CoderProvisioner", "alpha").await,
            _ => scene.ask_for_rotation().await,
        }
        // Some die before they have begun, most of them in the middle.
        if dice.below(4) > 0 {
            begins(&scene.stage.operator).await;
        }
        sleep(Duration::from_millis(dice.below(250))).await;
        if let Some(now) = scene.stage.kind("CoderProvisioner").get_opt("alpha").await.unwrap() {
            under_way += usize::from(!is_settled(&serde_json::to_value(now).unwrap()));
        }
        scene.next_operator();
        if death % 10 == 9 {
            let gone = scene.stage.kind("CoderProvisioner").get_opt("alpha").await.unwrap();
            if let Some(gone) = gone {
                scene.stage.gone(&serde_json::to_value(gone).unwrap()).await;
            }
            assert_eq!(scene.ours().await, [Value::Null; 0]);
        }
    }
    // How many is a matter of chance, and of how fast everything is.
    assert!(under_way > 1, "only {under_way} of {DEATHS} died in the middle of something");
    let key = scene.made(&json!({})).await;
    scene.stays(&key).await;
    scene.end().await;
}

#[tokio::test]
async fn a_key_whose_value_was_never_heard_is_revoked_by_the_next_operator() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let mut scene = Scene::on(Stage::at(coderd, &proxy.url).await).await;
    proxy.set_on("/provisionerkeys", Mood::HoldingWrites);
    scene.stage.apply(&idle(&json!({}))).await;
    for (deaths, name) in ["alpha", "alpha-"].into_iter().enumerate() {
        // coderd has made the key, and nobody has its value.
        let since = Instant::now();
        let lost = loop {
            assert!(since.elapsed() < LIMIT, "no key is made\n{:#?}", scene.stage.operator.said());
            let ours = scene.ours().await;
            let is_new = |it: &&Value| it["name"].as_str().unwrap().starts_with(name);
            match ours.iter().find(is_new) {
                Some(lost) if proxy.writes().len() > deaths => break lost.clone(),
                _ => sleep(Duration::from_millis(20)).await,
            }
        };
        scene.next_operator();
        let since = Instant::now();
        while scene.ours().await.contains(&lost) {
            assert!(since.elapsed() < LIMIT, "{lost} stays\n{:#?}", scene.stage.operator.said());
            sleep(Duration::from_millis(20)).await;
        }
    }
    proxy.set(Mood::Passing);
    scene.wait("made", is_settled).await;
    let key = scene.held().await;
    scene.stays(&key).await;
    scene.end().await;
}

#[tokio::test]
async fn two_operators_at_once_make_one_key_and_leave_none() {
    let scene = Scene::new().await;
    let second = Operator::start(&scene.stage.namespace, &[]);
    let mut key = scene.made(&json!({})).await;
    for _ in 0..4 {
        scene.ask_for_rotation().await;
        key = scene.replaced(&key).await;
    }
    scene.end().await;
    drop(second);
}
