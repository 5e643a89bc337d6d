//! Long stories of everything that can happen, told at random.

use proptest::{
    collection::vec,
    option,
    prelude::{Just, ProptestConfig, Strategy, any},
    prop_oneof, proptest,
    test_runner::RngSeed,
};

use super::{
    Shared,
    disturb::{Disturbance, disturb},
    ends_well,
    model::{Fault, Model},
    run::Process,
};
use engine::secrets::Policy;

/// A part of a story: something happens, and then operators have a go.
#[derive(Debug, Clone)]
struct Chapter {
    disturbance: Disturbance,
    /// Whether the second operator is awake too.
    is_doubled: bool,
    /// Whose turn it is.
    turns: Vec<bool>,
    /// Which one dies, and at which turn.
    death: Option<(bool, usize)>,
    /// A call that goes wrong.
    fault: Option<(usize, Fault)>,
    /// Whether what was read before is still believed.
    forgets: bool,
}

fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        Just(Disturbance::ForeignName),
        Just(Disturbance::Rotate),
        Just(Disturbance::Tags),
        Just(Disturbance::Name),
        Just(Disturbance::Organization),
        Just(Disturbance::Plane),
        Just(Disturbance::Url),
        Just(Disturbance::DeleteSecret),
        Just(Disturbance::EmptySecret),
        Just(Disturbance::SpoilSecret),
        Just(Disturbance::TouchSecret),
        Just(Disturbance::DeleteKey),
        Just(Disturbance::RestoreKey),
        Just(Disturbance::LoseRecord),
        any::<u8>().prop_map(Disturbance::LoseStatus),
        Just(Disturbance::RenameSecret),
        Just(Disturbance::RenameEntry),
        Just(Disturbance::OthersValue),
        any::<u8>().prop_map(Disturbance::RestoreSecret),
        (0..2000_u32).prop_map(Disturbance::Seconds),
        Just(Disturbance::Roll),
    ]
}

fn chapter() -> impl Strategy<Value = Chapter> {
    let fault = (1..20_usize, prop_oneof![Just(Fault::Refused), Just(Fault::LostAnswer)]);
    let parts = (
        disturbance(),
        any::<bool>(),
        vec(any::<bool>(), 0..60),
        option::of((any::<bool>(), 0..50_usize)),
        option::of(fault),
        any::<bool>(),
    );
    parts.prop_map(|(disturbance, is_doubled, turns, death, fault, forgets)| Chapter {
        disturbance,
        is_doubled,
        turns,
        death,
        fault,
        forgets,
    })
}

/// A thousand stories, the same ones in every run; with `KEY_STORIES` so many others.
fn config() -> ProptestConfig {
    let wanted = std::env::var("KEY_STORIES").ok().and_then(|it| it.parse().ok());
    let rng_seed = if wanted.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) };
    let cases = wanted.unwrap_or(1000);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_story_ends_well(chapters in vec(chapter(), 1..7), seconds in 0..30_u32, has_twin: bool) {
        let model = model(Policy::Recreate, has_twin);
        tell(&model, &chapters, seconds);
        ask_if_outdated(&model);
        ends_well(&model);
    }

    #[test]
    fn where_nothing_is_minted_unasked_a_request_mends_everything(
        chapters in vec(chapter(), 1..7), seconds in 0..30_u32, has_twin: bool
    ) {
        let model = model(Policy::OnRequest, has_twin);
        tell(&model, &chapters, seconds);
        comes_to_rest(&model);
        disturb(&model, Disturbance::Rotate);
        ends_well(&model);
    }
}

/// What is written down of a key in one place only must not be taken away there too.
fn is_loss(disturbance: Disturbance) -> bool {
    matches!(
        disturbance,
        Disturbance::DeleteSecret
            | Disturbance::LoseRecord
            | Disturbance::LoseStatus(_)
            | Disturbance::RenameSecret
            | Disturbance::RenameEntry
            | Disturbance::RestoreSecret(_)
    )
}

/// An older copy of the Secret waits for a person, who asks for a new key.
fn ask_if_outdated(model: &Shared) {
    let driven = Process::new("ask", model).pass().0.unwrap();
    if driven.rest.key.is_err_and(|it| it.reason == api::Reason::SecretOutdated) {
        disturb(model, Disturbance::Rotate);
    }
}

/// A model with keys of others: one that would do, and maybe one of the very name.
fn model(policy: Policy, has_twin: bool) -> Shared {
    let shared = Model::new(policy);
    {
        let mut model = shared.lock().unwrap();
        let (tags, base) = (model.wanted.tags.clone(), model.wanted.names.base.clone());
        model.foreign("somebody", &tags, true);
        if has_twin {
            model.foreign(&base, &tags, false);
        }
    }
    shared
}

/// Passes end, and soon they write nothing any more.
fn comes_to_rest(model: &Shared) {
    let mut process = Process::new("calm", model);
    for _ in 0..4 {
        let writes = model.lock().unwrap().writes;
        process.pass().0.unwrap();
        if model.lock().unwrap().writes == writes {
            return;
        }
    }
    panic!("it does not come to rest\n{:#?}", model.lock().unwrap());
}

fn tell(model: &Shared, chapters: &[Chapter], seconds: u32) {
    let (mut one, mut two) = (Process::lagging("one", model), Process::lagging("two", model));
    let mut is_whole = false;
    for chapter in chapters {
        if !is_loss(chapter.disturbance) || is_whole {
            is_whole &= !is_loss(chapter.disturbance);
            disturb(model, chapter.disturbance);
        }
        disturb(model, Disturbance::Seconds(seconds));
        if chapter.forgets {
            for operator in [&mut one.operator, &mut two.operator] {
                operator.forget_lists();
                operator.catch_up();
            }
        }
        if let Some((call, fault)) = chapter.fault {
            let mut model = model.lock().unwrap();
            let call = model.calls + call;
            model.faults.insert(call, fault);
            model.disturbances += 1;
        }
        is_whole |= act(chapter, model, &mut one, &mut two);
    }
}

/// Lets the operators act. Says whether one of them came to a good end after everything else.
fn act(chapter: &Chapter, model: &Shared, one: &mut Process, two: &mut Process) -> bool {
    one.begin();
    if chapter.is_doubled {
        two.begin();
        model.lock().unwrap().disturbances += 2;
    }
    for (number, is_first) in chapter.turns.iter().enumerate() {
        if let Some((who, at)) = chapter.death
            && at == number
        {
            model.lock().unwrap().disturbances += 1;
            if who {
                one.crash();
            } else {
                two.crash();
            }
        }
        let process = if *is_first || !chapter.is_doubled { &mut *one } else { &mut *two };
        process.step();
    }
    while two.is_busy() {
        two.step();
    }
    let mut is_whole = false;
    while one.is_busy() {
        is_whole = one.step().is_some_and(|it| it.is_ok_and(|it| it.rest.key.is_ok()));
    }
    model.lock().unwrap().faults.clear();
    // What rests on an older Secret says nothing about the one that is there.
    is_whole && one.operator.is_up_to_date()
}
