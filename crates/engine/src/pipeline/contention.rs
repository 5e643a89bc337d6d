//! Somebody else who keeps writing other values: after a few rounds we step back and say so. Pure; the time is an argument.

use std::{collections::BTreeMap, time::Duration};

use api::Reason;
use jiff::Timestamp;

use crate::pipeline::{
    outcome::Blocked,
    plan::{Change, Impact, PlanView},
};

/// How often a field is mended within the time below before we step back.
const MOST: usize = 3;
const WITHIN: Duration = Duration::from_hours(1);

/// How often each field of one object was mended lately.
#[derive(Debug, Default)]
pub struct Mended {
    generation: Option<i64>,
    /// By the field and what it was made: something new each time is no quarrel.
    fields: BTreeMap<(String, String), Vec<Timestamp>>,
}

impl Mended {
    /// A plan was carried out. What a new version of the manifest changes is nobody else's doing.
    pub fn record(&mut self, generation: Option<i64>, plan: &PlanView, now: Timestamp) {
        if self.generation != generation {
            self.fields.clear();
            self.generation = generation;
            return;
        }
        for times in self.fields.values_mut() {
            times.retain(|it| is_recent(*it, now));
        }
        for change in contested(plan) {
            self.fields.entry(key(change)).or_default().push(now);
        }
        self.fields.retain(|_, times| !times.is_empty());
    }

    /// Whether a plan would only be the next round of a quarrel.
    pub fn contended(&self, generation: Option<i64>, plan: &PlanView, now: Timestamp) -> Option<Blocked> {
        if self.generation != generation {
            return None;
        }
        let quarrel = contested(plan).find_map(|change| {
            let recent = self.fields.get(&key(change))?.iter().filter(|it| is_recent(**it, now));
            let times: Vec<Timestamp> = recent.copied().collect();
            let first = times.first().filter(|_| times.len() >= MOST)?;
            Some((&change.field, *first))
        });
        let (field, first) = quarrel?;
        let until = first.checked_add(WITHIN).unwrap_or(first);
        Some(Blocked {
            reason: Reason::Contended,
            message: format!(
                "another client reverted spec.{field} {MOST} times within an hour; not changed until {until}: find that client, \
                 or remove the field from the manifest"
            ),
        })
    }
}

/// The changes that another writer may take back. Upkeep follows from a change of ours.
fn contested(plan: &PlanView) -> impl Iterator<Item = &Change> {
    plan.steps.iter().filter(|it| it.impact != Impact::Upkeep).flat_map(|it| &it.changes)
}

fn key(change: &Change) -> (String, String) {
    (change.field.clone(), change.after.to_string())
}

fn is_recent(it: Timestamp, now: Timestamp) -> bool {
    now.duration_since(it).unsigned_abs() < WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::plan::{Action, Plan, Step};

    fn plan(field: &str) -> PlanView {
        let changes = vec![Change::new(field, 1, 2)];
        let (action, impact) = (Action::Update, Impact::Safe);
        Plan::of(Step { action, impact, reason: String::new(), changes, effect: () }).view("group a")
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// What is known after the manifest's own change and that many mends, five minutes apart.
    fn mended(times: i64) -> Mended {
        let mut mended = Mended::default();
        for time in 0..=times {
            mended.record(Some(1), &plan("quotaAllowance"), at(time * 5));
        }
        mended
    }

    #[test]
    fn a_field_that_was_mended_three_times_is_left_alone_for_the_rest_of_the_hour() {
        assert_eq!(mended(2).contended(Some(1), &plan("quotaAllowance"), at(15)), None);
        let contended = mended(3).contended(Some(1), &plan("quotaAllowance"), at(20)).unwrap();
        assert_eq!(contended.reason, api::Reason::Contended);
        assert!(contended.message.contains("spec.quotaAllowance"), "{}", contended.message);
        assert!(mended(3).contended(Some(1), &plan("quotaAllowance"), at(64)).is_some());
        assert_eq!(mended(3).contended(Some(1), &plan("quotaAllowance"), at(65)), None);
    }

    #[test]
    fn words_do_not_change_while_we_stand_back() {
        let known = mended(3);
        let words = |minute| known.contended(Some(1), &plan("quotaAllowance"), at(minute)).unwrap();
        assert_eq!(words(20), words(40));
    }

    #[test]
    fn another_field_and_another_version_of_the_manifest_are_another_matter() {
        assert_eq!(mended(3).contended(Some(1), &plan("displayName"), at(20)), None);
        assert_eq!(mended(3).contended(Some(2), &plan("quotaAllowance"), at(20)), None);
        let mut edited = mended(3);
        edited.record(Some(2), &plan("quotaAllowance"), at(20));
        assert_eq!(edited.contended(Some(2), &plan("quotaAllowance"), at(21)), None);
    }

    #[test]
    fn upkeep_never_counts_as_contention() {
        let mut upkeep = plan("version.test.workspace");
        upkeep.steps[0].impact = Impact::Upkeep;
        let mut mended = Mended::default();
        (0..9).for_each(|time| mended.record(Some(1), &upkeep, at(time)));
        assert_eq!(mended.contended(Some(1), &upkeep, at(9)), None);
    }
}
