//! Concurrency limits: of the objects of one control plane so many are reconciled side by side, and the others wait in line.
//!
//! A deployment answers only so fast. A thousand objects that all begin at once would wait inside their reconciles until their
//! deadline. Each control plane has its own limit, so that a slow one delays no other. How many requests a deployment is
//! sent at once is the client's own limit.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::planes::PlaneName;

/// How many objects of a control plane are looked at side by side.
const AT_ONCE: usize = 64;

/// The lines that somebody stands in.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<PlaneName, Weak<Semaphore>>>);

impl Turns {
    /// Returns when it is our turn, which lasts as long as the result is kept.
    pub(super) async fn next(&self, plane: &PlaneName) -> Option<OwnedSemaphorePermit> {
        self.line(plane).acquire_owned().await.ok()
    }

    fn line(&self, plane: &PlaneName) -> Arc<Semaphore> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(plane).and_then(Weak::upgrade) {
            return line;
        }
        // A line that nobody stands in is none.
        lines.retain(|_, it| it.strong_count() > 0);
        let line = Arc::new(Semaphore::new(AT_ONCE));
        lines.insert(plane.clone(), Arc::downgrade(&line));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(name: &str) -> PlaneName {
        ("platform".to_owned(), name.to_owned())
    }

    #[tokio::test]
    async fn a_full_line_delays_its_own_control_plane_and_no_other() {
        let turns = Turns::default();
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(turns.next(&plane("slow")).await.unwrap());
        }
        let slow = plane("slow");
        let mut waits = std::pin::pin!(turns.next(&slow));
        assert!(futures::poll!(&mut waits).is_pending());
        assert!(turns.next(&plane("other")).await.is_some());
        taken.pop();
        assert!(waits.await.is_some());
    }

    #[tokio::test]
    async fn lines_go_with_those_who_stand_in_them() {
        let turns = Turns::default();
        for number in 0..100 {
            drop(turns.next(&plane(&number.to_string())).await);
        }
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
