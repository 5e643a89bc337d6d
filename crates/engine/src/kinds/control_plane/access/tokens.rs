//! The tokens that we keep for one account: which one is in use, when the next one is minted, which ones go.

use std::time::Duration;

use client::users::Token;
use jiff::{SignedDuration, Timestamp};

use crate::kinds::control_plane::token_record::TokenRecord;

/// How long a token lives, where the deployment allows as much.
pub const LIFETIME: Duration = Duration::from_hours(24);
/// How long the token before stays good after a renewal: longer than any reconcile that began with it.
pub const OVERLAP: SignedDuration = SignedDuration::from_mins(2);

const PREFIX: &str = "coder-operator";
/// How much of a control plane's uid tells its tokens from those of others.
const OF_UID: usize = 8;

/// What the tokens of one control plane are called. No other control plane has the same names, also none that is made later
/// under the same name, and no name is used twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenNames {
    prefix: String,
}

/// What is known when it is decided.
#[derive(Debug, Clone, Copy)]
pub struct TokenSituation<'a> {
    pub names: &'a TokenNames,
    pub record: &'a TokenRecord,
    /// The id of the token in the Secret, if coderd takes it for the account.
    pub held: Option<&'a str>,
    /// All tokens of the account, expired ones included.
    pub listed: &'a [Token],
    pub now: Timestamp,
}

/// What to do, in this order, and when the next reconcile is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPlan {
    pub steps: Vec<TokenStep>,
    pub next: Timestamp,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenStep {
    /// Write down the name of the token that is about to be minted. The steps after it are done only if that worked.
    Intend { name: String },
    /// Delete a token that nobody holds, or that another one has taken the place of.
    Revoke { id: String, name: String },
    /// Mint a token, and write it into the Secret in place of the one before.
    Mint { name: String },
}

impl TokenNames {
    pub fn of(control_plane_uid: &str) -> Self {
        let uid: String =
            control_plane_uid.chars().filter(char::is_ascii_alphanumeric).take(OF_UID).collect();
        Self { prefix: format!("{PREFIX}-{uid}") }
    }

    fn nth(&self, number: u64) -> String {
        format!("{}-{number}", self.prefix)
    }

    /// Which one of ours it is, if it is one.
    fn number(&self, name: &str) -> Option<u64> {
        name.strip_prefix(&self.prefix)?.strip_prefix('-')?.parse().ok()
    }
}

impl TokenPlan {
    /// Whether a token is minted, so that the one in the Secret is about to be another.
    pub fn mints(&self) -> bool {
        self.steps.iter().any(|it| matches!(it, TokenStep::Mint { .. }))
    }
}

/// Decides. The token before goes only when the one that follows has been taken by coderd, which is what `held` says.
pub fn plan(situation: &TokenSituation<'_>) -> TokenPlan {
    let TokenSituation { names, record, held, listed, now } = *situation;
    let term = held.and_then(|id| term(id, situation));
    let is_renewed = record.minting.is_none() && term.as_ref().is_some_and(|it| now < it.half());
    let number = term.as_ref().and_then(|it| names.number(&it.name));
    let overlap_ends = term.as_ref().map(Term::overlap_ends);
    let overlaps = overlap_ends.is_some_and(|end| now < end);

    let others = listed.iter().filter(|it| Some(it.id.as_str()) != held);
    let ours: Vec<(u64, &Token)> =
        others.filter_map(|it| Some((names.number(&it.token_name)?, it))).collect();
    let (before, after): (Vec<_>, Vec<_>) =
        ours.iter().partition(|(it, _)| number.is_some_and(|held| *it < held));
    let revoke = |(_, token): &(u64, &Token)| TokenStep::Revoke {
        id: token.id.clone(),
        name: token.token_name.clone(),
    };
    let superseded = before.iter().filter(|_| !overlaps).map(revoke);

    match term {
        // Later ones than the one in use may be in the making elsewhere: they go with the next renewal.
        Some(term) if is_renewed => {
            let steps: Vec<_> = superseded.collect();
            let waits = overlap_ends.filter(|_| overlaps && !before.is_empty());
            let next = if steps.is_empty() { waits.unwrap_or_else(|| term.half()) } else { now };
            TokenPlan { steps, next }
        }
        _ => {
            let kept = record.token.iter().map(|it| it.name.as_str());
            let recorded = kept.chain(record.minting.as_deref()).filter_map(|it| names.number(it));
            let last = recorded.chain(ours.iter().map(|(it, _)| *it)).chain(number).max().unwrap_or_default();
            let name = names.nth(last + 1);
            let mut steps = vec![TokenStep::Intend { name: name.clone() }];
            steps.extend(superseded);
            steps.extend(after.iter().map(revoke));
            steps.push(TokenStep::Mint { name });
            TokenPlan { steps, next: now }
        }
    }
}

/// Decides how all tokens are revoked: every token that is ours, the one in use last.
pub fn plan_revocation(situation: &TokenSituation<'_>) -> Vec<TokenStep> {
    let TokenSituation { names, record: _, held, listed, now: _ } = *situation;
    let is_held = |it: &&Token| Some(it.id.as_str()) == held;
    let is_ours = |it: &&Token| names.number(&it.token_name).is_some();
    let others = listed.iter().filter(|it| is_ours(it) && !is_held(it));
    let revoke = |it: &Token| TokenStep::Revoke { id: it.id.clone(), name: it.token_name.clone() };
    others.chain(listed.iter().find(is_held)).map(revoke).collect()
}

/// A token that is in use, and its term.
struct Term {
    name: String,
    minted_at: Timestamp,
    expires_at: Timestamp,
}

impl Term {
    /// Half of its life: from then on it is renewed.
    fn half(&self) -> Timestamp {
        let life = self.expires_at.duration_since(self.minted_at);
        self.minted_at.checked_add(life / 2).unwrap_or(self.minted_at)
    }

    /// Until then the token before stays. Where tokens live for minutes, so does the overlap.
    fn overlap_ends(&self) -> Timestamp {
        let life = self.expires_at.duration_since(self.minted_at);
        self.minted_at.checked_add(OVERLAP.min(life / 4)).unwrap_or(self.minted_at)
    }
}

/// Our own record of the times stands, unless it was written by a clock that was ahead of this one.
fn term(held: &str, situation: &TokenSituation<'_>) -> Option<Term> {
    let TokenSituation { names: _, record, held: _, listed, now } = *situation;
    let listed = listed.iter().find(|it| it.id == held);
    let is_same = |name: &str| listed.is_none_or(|it| it.token_name == name);
    let recorded = record.token.as_ref().filter(|it| it.minted_at <= now && is_same(&it.name));
    let recorded =
        recorded.map(|it| Term { name: it.name.clone(), minted_at: it.minted_at, expires_at: it.expires_at });
    let shown = || {
        listed.map(|it| Term {
            name: it.token_name.clone(),
            minted_at: it.created_at,
            expires_at: it.expires_at,
        })
    };
    recorded.or_else(shown)
}

#[cfg(test)]
mod tests;
