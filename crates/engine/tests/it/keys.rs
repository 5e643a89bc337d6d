//! The life of provisioner keys on deployments and a cluster in memory: whatever happens, whenever an operator dies, and with
//! two of them at once, no key is lost, no foreign one is touched, and it ends with one key whose value is in the Secret.

mod adversity;
mod calls;
mod cases;
mod disturb;
mod model;
mod restored;
mod run;
mod secret;
mod stories;
mod unwritten;
mod wire;

use engine::secrets::Policy;

use self::{
    disturb::{Disturbance, disturb},
    model::{Fault, Model, Shared},
    run::{Process, finish, settle},
    secret::entries,
};
use crate::memory::wait;

/// Everything that may be going on when an operator dies.
const SCENES: [&[Disturbance]; 18] = [
    &[],
    &[Disturbance::ForeignName],
    &[Disturbance::Rotate],
    &[Disturbance::Rotate, Disturbance::Rotate],
    &[Disturbance::Tags],
    &[Disturbance::Name],
    &[Disturbance::Organization],
    &[Disturbance::Plane],
    &[Disturbance::Replaced],
    &[Disturbance::Rotate, Disturbance::Replaced],
    &[Disturbance::Url],
    &[Disturbance::DeleteSecret],
    &[Disturbance::EmptySecret],
    &[Disturbance::SpoilSecret],
    &[Disturbance::DeleteKey],
    &[Disturbance::LoseRecord],
    &[Disturbance::LoseStatus(0xff)],
    &[Disturbance::RenameSecret],
];

/// Models in which the last of a scene has just happened, and nobody has seen it yet.
fn scenes() -> impl Iterator<Item = Shared> {
    SCENES.into_iter().map(|scene| {
        let model = Model::new(Policy::Recreate);
        for disturbance in scene {
            if *disturbance != Disturbance::ForeignName {
                settle(&model);
            }
            disturb(&model, *disturbance);
        }
        model
    })
}

/// Whether a case is run: one in so many of each scene, and others in the next scene. With `KEY_STORIES` all of them are.
fn is_run(scene: usize, case: usize, one_in: usize) -> bool {
    std::env::var_os("KEY_STORIES").is_some() || (scene + case).is_multiple_of(one_in)
}

fn fork(model: &Shared) -> Shared {
    model.lock().unwrap().fork()
}

/// The model comes to its end as it should, and leaves nothing behind.
fn ends_well(model: &Shared) {
    let driven = settle(model);
    {
        let model = model.lock().unwrap();
        let live = model.live().unwrap_or_else(|| panic!("no live key\n{model:#?}"));
        assert!(driven.rest.key.is_ok());
        assert_eq!(live.key.organization_id, model.wanted.organization_id, "{model:#?}");
        assert_eq!(live.key.tags, model.wanted.tags, "{model:#?}");
        assert_eq!(Some(live.deployment), model.wanted.place.deployment_id, "{model:#?}");
        assert_eq!(model.ours().count(), usize::from(!live.is_foreign), "{model:#?}");
        assert_eq!(model.completed_record(), Some(model.status()), "{model:#?}");
        assert!(model.status().current.unwrap().id.is_some(), "{model:#?}");
        // A backup may bring back an entry that was removed: its value is dead.
        let is_declared =
            |it: &serde_json::Value| it["metadata"]["name"] == model.wanted.secret.name.as_str();
        let others: Vec<_> = model.cluster.all("Secret").into_iter().filter(|it| !is_declared(it)).collect();
        let mut values = others.iter().flat_map(entries);
        let is_live = |(_, value): (String, String)| model.ours().any(|it| it.value == value);
        assert!(!model.has_pods || !values.any(is_live), "{model:#?}");
    }
    finish(model);
    let model = model.lock().unwrap();
    assert_eq!(model.ours().count(), 0, "{model:#?}");
}

#[test]
fn every_scene_ends_well() {
    for scene in scenes() {
        ends_well(&scene);
    }
}

#[test]
fn an_operator_may_die_anywhere_and_the_next_one_too() {
    let mut deaths = 0;
    for (number, scene) in scenes().enumerate() {
        for first in 0.. {
            let mut is_first_over = false;
            for second in (0..).filter(|it| is_run(number, first + it, 2)) {
                let model = fork(&scene);
                is_first_over = !dies_at(&model, first);
                let is_second_over = is_first_over || !dies_at(&model, second);
                ends_well(&model);
                deaths += 1;
                if is_second_over {
                    break;
                }
            }
            if is_first_over {
                break;
            }
        }
    }
    assert!(deaths > 1800, "{deaths}");
}

/// Lets an operator begin and die at that stop. Says whether it came to that.
fn dies_at(model: &Shared, stop: usize) -> bool {
    let mut process = Process::new("dies", model);
    process.begin();
    for _ in 0..=stop {
        if process.step().is_some() {
            return false;
        }
    }
    process.crash();
    model.lock().unwrap().disturbances += 1;
    true
}

#[test]
fn any_call_may_be_refused_or_its_answer_be_lost() {
    let pairs = (1..24).flat_map(|it| (it..24).step_by(2).map(move |other| (it, other)));
    let pairs: Vec<(usize, usize)> = pairs.collect();
    for (number, scene) in scenes().enumerate() {
        for fault in [Fault::Refused, Fault::LostAnswer] {
            let chosen = pairs.iter().enumerate().filter(|(case, _)| is_run(number, *case, 3));
            for (first, second) in chosen.map(|it| *it.1) {
                let model = fork(&scene);
                {
                    let mut model = model.lock().unwrap();
                    let calls = model.calls;
                    model.faults.extend([(calls + first, fault), (calls + second, fault)]);
                    model.disturbances += 2;
                }
                let mut process = Process::new("unlucky", &model);
                process.pass().0.ok();
                process.pass().0.ok();
                process.pass().0.ok();
                ends_well(&model);
            }
        }
    }
}

#[test]
fn two_operators_are_harmless_however_they_take_turns() {
    let mut most = 0;
    for (number, scene) in scenes().enumerate() {
        // Three changes of turns, everywhere; one of the two may die in the end.
        let chosen = turns(15).enumerate().filter(|(case, _)| is_run(number, *case, 6));
        for (_, (one, two, three)) in chosen {
            for dies in [false, true] {
                let model = fork(&scene);
                let minted = model.lock().unwrap().minted;
                model.lock().unwrap().disturbances += 2;
                let (mut a, mut b) = (Process::new("a", &model), Process::new("b", &model));
                a.begin();
                b.begin();
                a.steps(one);
                b.steps(two);
                a.steps(three);
                while !dies && b.is_busy() {
                    b.step();
                }
                b.crash();
                while a.is_busy() {
                    a.step();
                }
                most = most.max(model.lock().unwrap().minted - minted);
                ends_well(&model);
            }
        }
    }
    assert!(most <= 3, "{most}");
}

#[test]
fn deletion_leaves_nothing_wherever_the_last_operator_died() {
    for scene in scenes() {
        for stop in 0.. {
            let model = fork(&scene);
            let died = dies_at(&model, stop);
            finish(&model);
            let model = model.lock().unwrap();
            assert_eq!(model.ours().count(), 0, "{model:#?}");
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_name_is_not_free_because_an_old_list_does_not_have_it() {
    let model = Model::new(Policy::Recreate);
    let mut process = Process::new("", &model);
    let home = model.lock().unwrap().wanted.organization_id;
    let now = model.lock().unwrap().now();
    wait(process.operator.here().keys(home, now)).unwrap();
    // A person makes the very key that is about to be declared.
    let tags = model.lock().unwrap().wanted.tags.clone();
    model.lock().unwrap().foreign("alpha", &tags, false);
    disturb(&model, Disturbance::Seconds(60));
    process.pass().0.unwrap();
    assert_eq!(model.lock().unwrap().live().unwrap().key.name, "alpha-1a2b-1");
    assert_eq!(model.lock().unwrap().minted, 1);
    ends_well(&model);
}

#[test]
fn a_label_on_the_secret_between_mint_and_write_costs_no_second_key() {
    let model = Model::new(Policy::Recreate);
    let mut process = Process::new("", &model);
    process.begin();
    while model.lock().unwrap().minted == 0 {
        process.step();
    }
    disturb(&model, Disturbance::TouchSecret);
    while process.is_busy() {
        process.step();
    }
    assert_eq!(model.lock().unwrap().minted, 1);
    ends_well(&model);
}

#[test]
fn a_name_that_was_given_up_is_found_when_somebody_who_slept_asks_for_it() {
    for call in 1..16 {
        let model = Model::new(Policy::Recreate);
        model.lock().unwrap().disturbances += 2;
        let mut sleeper = Process::new("sleeper", &model);
        sleeper.begin();
        while model.lock().unwrap().status().intent.is_none() {
            sleeper.step();
        }
        {
            let mut model = model.lock().unwrap();
            let call = model.calls + call;
            model.faults.insert(call, Fault::LostAnswer);
        }
        // Another one mints that name, hears no answer, gives it up and revokes it.
        let mut other = Process::new("other", &model);
        other.pass().0.ok();
        other.pass().0.ok();
        let minted = model.lock().unwrap().minted;
        while sleeper.is_busy() && model.lock().unwrap().minted == minted {
            sleeper.step();
        }
        sleeper.crash();
        ends_well(&model);
    }
}

#[test]
fn an_operator_that_slept_takes_back_what_it_mints_too_late() {
    let model = Model::new(Policy::Recreate);
    model.lock().unwrap().disturbances += 1;
    let mut sleeper = Process::new("sleeper", &model);
    sleeper.begin();
    while model.lock().unwrap().status().intent.is_none() {
        sleeper.step();
    }
    // Its key is made, rotated and revoked by another one before it wakes.
    settle(&model);
    model.lock().unwrap().roll();
    disturb(&model, Disturbance::Rotate);
    settle(&model);
    assert_eq!(model.lock().unwrap().ours().count(), 1);
    model.lock().unwrap().checks_names = false;
    while sleeper.is_busy() {
        sleeper.step();
    }
    model.lock().unwrap().checks_names = true;
    assert!(model.lock().unwrap().log.contains(&"sleeper: mint Alpha".to_owned()));
    ends_well(&model);
}

fn turns(longest: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let pairs = (0..longest).flat_map(move |one| (1..longest).map(move |two| (one, two)));
    pairs.flat_map(move |(one, two)| [0, 3, 8].map(move |three| (one, two, three)))
}
