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

use engine::secrets::{Coderd as _, Policy};

use self::{
    disturb::{Disturbance, disturb},
    model::{Coder, Fault, Shared},
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
fn scenes() -> impl Iterator<Item = Coder> {
    SCENES.into_iter().map(|scene| {
        let coder = Coder::new(Policy::Recreate);
        for disturbance in scene {
            if *disturbance != Disturbance::ForeignName {
                settle(&coder);
            }
            disturb(&coder, *disturbance);
        }
        let coder = coder.lock().unwrap();
        coder.clone()
    })
}

fn shared(coder: &Coder) -> Shared {
    Arc::new(Mutex::new(coder.clone()))
}

/// The coder comes to its end as it should, and leaves nothing behind.
fn ends_well(coder: &Shared) {
    let driven = settle(coder);
    {
        let coder = coder.lock().unwrap();
        let live = coder.live().unwrap_or_else(|| panic!("no live key\n{coder:#?}"));
        assert!(driven.rest.key.is_ok());
        assert_eq!(live.key.organization_id, coder.wanted.organization_id, "{coder:#?}");
        assert_eq!(live.key.tags, coder.wanted.tags, "{coder:#?}");
        assert_eq!(Some(live.deployment), coder.wanted.place.deployment_id, "{coder:#?}");
        assert_eq!(coder.ours().count(), usize::from(!live.is_foreign), "{coder:#?}");
        assert_eq!(coder.record(), Some(&coder.status), "{coder:#?}");
        // A backup may bring back an entry that was removed: its value is dead.
        let others = coder.secrets.iter().filter(|it| *it.0 != coder.wanted.secret.name);
        let mut values = others.flat_map(|it| it.1.data.values());
        let is_live = |value: &String| coder.ours().any(|it| it.value == *value);
        assert!(!coder.has_pods || !values.any(is_live), "{coder:#?}");
    }
    finish(coder);
    let coder = coder.lock().unwrap();
    assert_eq!(coder.ours().count(), 0, "{coder:#?}");
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
                let coder = shared(&scene);
                is_first_over = !dies_at(&coder, first);
                let is_second_over = is_first_over || !dies_at(&coder, second);
                ends_well(&coder);
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
fn dies_at(coder: &Shared, stop: usize) -> bool {
    let mut process = Process::new("dies", coder);
    process.begin();
    for _ in 0..=stop {
        if process.step().is_some() {
            return false;
        }
    }
    process.crash();
    coder.lock().unwrap().disturbances += 1;
    true
}

#[test]
fn any_call_may_be_refused_or_its_answer_be_lost() {
    for scene in scenes() {
        for fault in [Fault::Refused, Fault::LostAnswer] {
            for (first, second) in (1..24).flat_map(|it| (it..24).step_by(2).map(move |other| (it, other))) {
                let coder = shared(&scene);
                {
                    let mut coder = coder.lock().unwrap();
                    let calls = coder.calls;
                    coder.faults.extend([(calls + first, fault), (calls + second, fault)]);
                    coder.disturbances += 2;
                }
                let mut process = Process::new("unlucky", &coder);
                process.pass().0.ok();
                process.pass().0.ok();
                process.pass().0.ok();
                ends_well(&coder);
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
                let coder = shared(&scene);
                let minted = coder.lock().unwrap().minted;
                coder.lock().unwrap().disturbances += 2;
                let (mut a, mut b) = (Process::new("a", &coder), Process::new("b", &coder));
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
                most = most.max(coder.lock().unwrap().minted - minted);
                ends_well(&coder);
            }
        }
    }
    assert!(most <= 3, "{most}");
}

#[test]
fn deletion_leaves_nothing_wherever_the_last_operator_died() {
    for scene in scenes() {
        for stop in 0.. {
            let coder = shared(&scene);
            let died = dies_at(&coder, stop);
            finish(&coder);
            let coder = coder.lock().unwrap();
            assert_eq!(coder.ours().count(), 0, "{coder:#?}");
            if !died {
                break;
            }
        }
    }
}

#[test]
fn a_name_is_not_free_because_an_old_list_does_not_have_it() {
    let coder = Coder::new(Policy::Recreate);
    let mut process = Process::new("", &coder);
    let home = coder.lock().unwrap().wanted.organization_id;
    let now = coder.lock().unwrap().now;
    wait(process.operator.list(home, false, now)).unwrap();
    // A person makes the very key that is about to be declared.
    let tags = coder.lock().unwrap().wanted.tags.clone();
    coder.lock().unwrap().foreign("alpha", &tags, 0);
    disturb(&coder, Disturbance::Seconds(60));
    process.pass().0.unwrap();
    assert_eq!(coder.lock().unwrap().live().unwrap().key.name, "alpha-1a2b-1");
    assert_eq!(coder.lock().unwrap().minted, 1);
    ends_well(&coder);
}

#[test]
fn a_label_on_the_secret_between_mint_and_write_costs_no_second_key() {
    let coder = Coder::new(Policy::Recreate);
    let mut process = Process::new("", &coder);
    process.begin();
    while coder.lock().unwrap().minted == 0 {
        process.step();
    }
    disturb(&coder, Disturbance::TouchSecret);
    while process.is_busy() {
        process.step();
    }
    assert_eq!(coder.lock().unwrap().minted, 1);
    ends_well(&coder);
}

#[test]
fn a_name_that_was_given_up_is_found_when_somebody_who_slept_asks_for_it() {
    for call in 1..16 {
        let coder = Coder::new(Policy::Recreate);
        coder.lock().unwrap().disturbances += 2;
        let mut sleeper = Process::new("sleeper", &coder);
        sleeper.begin();
        while coder.lock().unwrap().status.intent.is_none() {
            sleeper.step();
        }
        {
            let mut coder = coder.lock().unwrap();
            let call = coder.calls + call;
            coder.faults.insert(call, Fault::LostAnswer);
        }
        // Another one mints that name, hears no answer, gives it up and revokes it.
        let mut other = Process::new("other", &coder);
        other.pass().0.ok();
        other.pass().0.ok();
        let minted = coder.lock().unwrap().minted;
        while sleeper.is_busy() && coder.lock().unwrap().minted == minted {
            sleeper.step();
        }
        sleeper.crash();
        ends_well(&coder);
    }
}

#[test]
fn an_operator_that_slept_takes_back_what_it_mints_too_late() {
    let coder = Coder::new(Policy::Recreate);
    coder.lock().unwrap().disturbances += 1;
    let mut sleeper = Process::new("sleeper", &coder);
    sleeper.begin();
    while coder.lock().unwrap().status.intent.is_none() {
        sleeper.step();
    }
    // Its key is made, rotated and revoked by another one before it wakes.
    settle(&coder);
    coder.lock().unwrap().roll();
    disturb(&coder, Disturbance::Rotate);
    settle(&coder);
    assert_eq!(coder.lock().unwrap().ours().count(), 1);
    coder.lock().unwrap().checks_names = false;
    while sleeper.is_busy() {
        sleeper.step();
    }
    coder.lock().unwrap().checks_names = true;
    assert!(coder.lock().unwrap().log.contains(&"sleeper: mint Alpha".to_owned()));
    ends_well(&coder);
}

fn turns(longest: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let pairs = (0..longest).flat_map(move |one| (1..longest).map(move |two| (one, two)));
    pairs.flat_map(move |(one, two)| [0, 3, 8].map(move |three| (one, two, three)))
}
