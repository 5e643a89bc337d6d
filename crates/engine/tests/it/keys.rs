//! The life of provisioner keys on a model of coderd and the cluster: whatever happens, whenever an operator dies, and with
//! two of them at once, no key is lost, no foreign one is touched, and it ends with one key whose value is in the Secret.

mod adversity;
mod around;
mod cases;
mod disturb;
mod model;
mod restored;
mod run;
mod secrets;
mod stories;
mod wire;

use std::sync::{Arc, Mutex};

use engine::provisioner_keys::{Coderd as _, Policy};

use self::{
    disturb::{Disturbance, disturb},
    model::{Fault, Shared, World},
    run::{Process, finish, settle, wait},
};

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

/// Worlds in which the last of a scene has just happened, and nobody has seen it yet.
fn scenes() -> impl Iterator<Item = World> {
    SCENES.into_iter().map(|scene| {
        let world = World::new(Policy::Recreate);
        for disturbance in scene {
            if *disturbance != Disturbance::ForeignName {
                settle(&world);
            }
            disturb(&world, *disturbance);
        }
        let world = world.lock().unwrap();
        world.clone()
    })
}

fn shared(world: &World) -> Shared {
    Arc::new(Mutex::new(world.clone()))
}

/// The world comes to its end as it should, and leaves nothing behind.
fn ends_well(world: &Shared) {
    let driven = settle(world);
    {
        let world = world.lock().unwrap();
        let live = world.live().unwrap_or_else(|| panic!("no live key\n{world:#?}"));
        assert!(driven.rest.key.is_ok());
        assert_eq!(live.key.organization_id, world.wanted.organization_id, "{world:#?}");
        assert_eq!(live.key.tags, world.wanted.tags, "{world:#?}");
        assert_eq!(Some(live.deployment), world.wanted.place.deployment_id, "{world:#?}");
        assert_eq!(world.ours().count(), usize::from(!live.is_foreign), "{world:#?}");
        assert_eq!(world.record(), Some(&world.status), "{world:#?}");
        // A backup may bring back an entry that was removed: its value is dead.
        let others = world.secrets.iter().filter(|it| *it.0 != world.wanted.secret.name);
        let mut values = others.flat_map(|it| it.1.data.values());
        let is_live = |value: &String| world.ours().any(|it| it.value == *value);
        assert!(!world.has_pods || !values.any(is_live), "{world:#?}");
    }
    finish(world);
    let world = world.lock().unwrap();
    assert_eq!(world.ours().count(), 0, "{world:#?}");
}

#[test]
fn every_scene_ends_well() {
    for scene in scenes() {
        ends_well(&shared(&scene));
    }
}

#[test]
fn an_operator_may_die_anywhere_and_the_next_one_too() {
    let mut deaths = 0;
    for scene in scenes() {
        for first in 0.. {
            let mut is_first_over = false;
            for second in 0.. {
                let world = shared(&scene);
                is_first_over = !dies_at(&world, first);
                let is_second_over = is_first_over || !dies_at(&world, second);
                ends_well(&world);
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
    assert!(deaths > 4000, "{deaths}");
}

/// Lets an operator begin and die at that stop. Says whether it came to that.
fn dies_at(world: &Shared, stop: usize) -> bool {
    let mut process = Process::new("dies", world);
    process.begin();
    for _ in 0..=stop {
        if process.step().is_some() {
            return false;
        }
    }
    process.crash();
    world.lock().unwrap().disturbances += 1;
    true
}

#[test]
fn any_call_may_be_refused_or_its_answer_be_lost() {
    for scene in scenes() {
        for fault in [Fault::Refused, Fault::LostAnswer] {
            for (first, second) in (1..24).flat_map(|it| (it..24).step_by(2).map(move |other| (it, other))) {
                let world = shared(&scene);
                {
                    let mut world = world.lock().unwrap();
                    let calls = world.calls;
                    world.faults.extend([(calls + first, fault), (calls + second, fault)]);
                    world.disturbances += 2;
                }
                let mut process = Process::new("unlucky", &world);
                process.pass().0.ok();
                process.pass().0.ok();
                process.pass().0.ok();
                ends_well(&world);
            }
        }
    }
}

#[test]
fn two_operators_are_harmless_however_they_take_turns() {
    let mut most = 0;
    for scene in scenes() {
        // Three changes of turns, everywhere; one of the two may die in the end.
        for (one, two, three) in turns(15) {
            for dies in [false, true] {
                let world = shared(&scene);
                let minted = world.lock().unwrap().minted;
                world.lock().unwrap().disturbances += 2;
                let (mut a, mut b) = (Process::new("a", &world), Process::new("b", &world));
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
                most = most.max(world.lock().unwrap().minted - minted);
                ends_well(&world);
            }
        }
    }
    assert!(most <= 3, "{most}");
}

#[test]
fn deletion_leaves_nothing_wherever_the_last_operator_died() {
    for scene in scenes() {
        for stop in 0.. {
            let world = shared(&scene);
            let died = dies_at(&world, stop);
            finish(&world);
            let world = world.lock().unwrap();
            assert_eq!(world.ours().count(), 0, "{world:#?}");
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_name_is_not_free_because_an_old_list_does_not_have_it() {
    let world = World::new(Policy::Recreate);
    let mut process = Process::new("", &world);
    let home = world.lock().unwrap().wanted.organization_id;
    let now = world.lock().unwrap().now;
    wait(process.operator.list(home, false, now)).unwrap();
    // A person makes the very key that is about to be declared.
    let tags = world.lock().unwrap().wanted.tags.clone();
    world.lock().unwrap().foreign("alpha", &tags, 0);
    disturb(&world, Disturbance::Seconds(60));
    process.pass().0.unwrap();
    assert_eq!(world.lock().unwrap().live().unwrap().key.name, "alpha-1a2b-1");
    assert_eq!(world.lock().unwrap().minted, 1);
    ends_well(&world);
}

#[test]
fn a_label_on_the_secret_between_mint_and_write_costs_no_second_key() {
    let world = World::new(Policy::Recreate);
    let mut process = Process::new("", &world);
    process.begin();
    while world.lock().unwrap().minted == 0 {
        process.step();
    }
    disturb(&world, Disturbance::TouchSecret);
    while process.is_busy() {
        process.step();
    }
    assert_eq!(world.lock().unwrap().minted, 1);
    ends_well(&world);
}

#[test]
fn a_name_that_was_given_up_is_found_when_somebody_who_slept_asks_for_it() {
    for call in 1..16 {
        let world = World::new(Policy::Recreate);
        world.lock().unwrap().disturbances += 2;
        let mut sleeper = Process::new("sleeper", &world);
        sleeper.begin();
        while world.lock().unwrap().status.intent.is_none() {
            sleeper.step();
        }
        {
            let mut world = world.lock().unwrap();
            let call = world.calls + call;
            world.faults.insert(call, Fault::LostAnswer);
        }
        // Another one mints that name, hears no answer, gives it up and revokes it.
        let mut other = Process::new("other", &world);
        other.pass().0.ok();
        other.pass().0.ok();
        let minted = world.lock().unwrap().minted;
        while sleeper.is_busy() && world.lock().unwrap().minted == minted {
            sleeper.step();
        }
        sleeper.crash();
        ends_well(&world);
    }
}

#[test]
fn an_operator_that_slept_takes_back_what_it_mints_too_late() {
    let world = World::new(Policy::Recreate);
    world.lock().unwrap().disturbances += 1;
    let mut sleeper = Process::new("sleeper", &world);
    sleeper.begin();
    while world.lock().unwrap().status.intent.is_none() {
        sleeper.step();
    }
    // Its key is made, rotated and revoked by another one before it wakes.
    settle(&world);
    world.lock().unwrap().roll();
    disturb(&world, Disturbance::Rotate);
    settle(&world);
    assert_eq!(world.lock().unwrap().ours().count(), 1);
    world.lock().unwrap().checks_names = false;
    while sleeper.is_busy() {
        sleeper.step();
    }
    world.lock().unwrap().checks_names = true;
    assert!(world.lock().unwrap().log.contains(&"sleeper: mint Alpha".to_owned()));
    ends_well(&world);
}

fn turns(longest: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let pairs = (0..longest).flat_map(move |one| (1..longest).map(move |two| (one, two)));
    pairs.flat_map(move |(one, two)| [0, 3, 8].map(move |three| (one, two, three)))
}
