//! Does what the machine decides, one action after the other, until it rests. Values are here and nowhere else.

use jiff::Timestamp;
use secrecy::SecretString;

use super::coderd::{Minting, revoke};
use crate::{
    coder::Coder,
    pipeline::outcome::{Blocked, Trouble},
    secrets::{
        around::{Around, Why},
        copies,
        key_secrets::{KeySecrets, Written},
        machine::{self, Next, Rest, SecretWrite, settle},
        names::checksum,
        own::Came,
        preview::{KeyPreview, preview},
        record::{Held, Intent, Record, Retiring},
        revoked::Revoked,
        secret_read::SecretRead,
        situation::{AROUND_INTENT, LiveKey, Pods, Policy, Proof, SecretSeen, Seen, Value, Wanted},
    },
};

/// One pass over the keys of one object.
#[derive(Debug)]
pub struct Drive<'a, 'k> {
    pub wanted: &'a Wanted,
    pub coder: &'a Coder,
    pub secret: &'a KeySecrets<'k>,
    pub around: &'a Around<'k>,
    /// What the status says.
    pub mirror: Record,
    /// The newest copy of the record that this process knows.
    pub remembered: Option<Record>,
    pub pods: Option<Pods>,
    pub now: Timestamp,
}

/// How it ended.
#[derive(Debug)]
pub struct Driven {
    pub rest: Rest,
    /// Keys that could not be revoked yet, and why: to be tried again.
    pub trouble: Option<Trouble>,
}

/// What a look has read.
pub struct Looked(Box<State>);

impl Looked {
    /// What would be done while the keys that are not minted yet are held back.
    pub(crate) fn held_back(&self, wanted: &Wanted, now: Timestamp) -> Option<KeyPreview> {
        preview(&wanted.without_mint(), &self.0.seen, now)
    }

    /// What would be done about keys that have to go.
    pub(crate) fn revocations(&self, wanted: &Wanted, now: Timestamp) -> Option<KeyPreview> {
        preview(&wanted.only_revoking(), &self.0.seen, now)
    }

    /// The record that names a key which is about to be minted, where nothing else comes first.
    pub(crate) fn begins(&self, wanted: &Wanted, now: Timestamp) -> Option<Record> {
        match machine::next(wanted, &self.0.seen, now) {
            Next::Begin { record, .. } => Some(*record),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Looked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Looked").field(&self.0.seen).finish()
    }
}

/// How a Secret is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Not at all, where it has not changed since it was last read.
    Known,
    Now,
}

/// What a pass has in its hands.
struct State {
    seen: Seen,
    /// Whether the Secret was not read, because it has not changed since it was.
    is_known: bool,
    value: Option<SecretString>,
    version: Option<String>,
    former: Option<SecretString>,
    minted: Option<SecretString>,
    trouble: Option<Trouble>,
    /// The key that may have been made when coderd was last asked, and what it said.
    unclear: Option<(String, Trouble)>,
    /// Whether coderd has failed to say so once.
    was_unclear: bool,
}

impl Drive<'_, '_> {
    /// Goes on until there is nothing to do, or something fails.
    pub async fn run(&self) -> Result<Driven, Trouble> {
        self.run_revoking(|_| true).await
    }

    /// The same after a look, without reading again what that has read. `begun` is the record that was written into the status since.
    pub async fn run_after(&self, looked: Looked, begun: Option<&Record>) -> Result<Driven, Trouble> {
        let Looked(mut state) = looked;
        if let Some(record) = begun {
            self.begun(&mut state, record);
        }
        Box::pin(self.go_on(state, |_| true)).await
    }

    /// Enters that a record which names a key to be minted stands in the status.
    fn begun(&self, state: &mut State, record: &Record) {
        state.seen.begun(record);
        self.around.remember(record);
        self.remember(state);
    }

    /// The same, and revokes no other keys than these. Those whose values are lost are nobody's, and go in any case.
    pub async fn run_revoking(&self, goes: impl Fn(&Held) -> bool + Send + Sync) -> Result<Driven, Trouble> {
        let state = Box::new(self.start(Reading::Known).await?);
        Box::pin(self.go_on(state, goes)).await
    }

    async fn go_on(
        &self,
        mut state: Box<State>,
        goes: impl Fn(&Held) -> bool + Send + Sync,
    ) -> Result<Driven, Trouble> {
        if state.is_known && !self.rests(&state) {
            // Whatever is done rests on the Secret as it is now.
            *state = self.start(Reading::Now).await?;
        }
        let (mut actions, mut most) = (0, 0);
        loop {
            // A list that is read meanwhile may show more keys that have to go.
            most = machine::most_actions(self.wanted, &state.seen).max(most);
            if actions == most {
                return Err(unsettled());
            }
            actions += 1;
            let next = machine::next(self.wanted, &state.seen, self.now);
            match next {
                Next::Rest(rest) => return Ok(Driven { rest: *rest, trouble: state.trouble }),
                Next::Write(write) => self.write(&mut state, *write).await?,
                Next::Begin { record, need: _ } => {
                    self.around.begin(&state.seen.mirror, &record).await?;
                    self.begun(&mut state, &record);
                }
                Next::Mirror { record, leaves } => {
                    self.leave(&leaves).await;
                    self.around.mirror(&record).await?;
                    state.seen.mirrored(&record);
                    self.around.remember(&record);
                    state.drop_given_up();
                }
                Next::Look => {
                    self.look_anew(&mut state).await?;
                    // It was not made, and asking again at once would do the same.
                    if let Some((name, trouble)) = state.unclear.take()
                        && state.seen.find(&name).is_none()
                    {
                        return Err(trouble);
                    }
                }
                Next::Mint(intent) => self.mint(&mut state, &intent).await?,
                Next::Prove => {
                    let Some(value) = &state.value else { return Err(unsettled()) };
                    let key = self.coder.prove_key(value).await?;
                    state.seen.proved(key);
                }
                Next::Revoke(retiring) if !retiring.lost && !goes(&retiring.held) => {
                    state.seen.failed(&retiring.held);
                }
                Next::Revoke(retiring) => self.revoke(&mut state, &retiring).await,
                Next::Remove(place) => {
                    self.secret.remove(&place).await?;
                    state.seen.removed(&place);
                    // It may have been an entry of the same Secret.
                    let secret = self.read(&mut state).await?;
                    state.seen.reread(secret);
                }
            }
        }
    }

    /// Whether nothing is to be done.
    fn rests(&self, state: &State) -> bool {
        matches!(machine::next(self.wanted, &state.seen, self.now), Next::Rest(_))
    }

    /// Reads what there is to know, and tells what [`Drive::run`] would do. Nothing is written. Where there is nothing to do, a read
    /// that failed is the error: what it would have shown may be all there is to do.
    pub async fn look(&self) -> Result<(KeyPreview, Looked), Trouble> {
        let state = Box::new(self.start(Reading::Now).await?);
        let (preview, mut looked) = self.look_from(state).await?;
        match looked.0.trouble.take() {
            Some(trouble) if preview.acts.is_empty() => Err(trouble),
            _ => Ok((preview, looked)),
        }
    }

    /// The same, where a Secret that has not changed is not read again. [`Drive::run_after`] goes on from there.
    pub async fn look_first(&self) -> Result<(KeyPreview, Looked), Trouble> {
        let mut state = Box::new(self.start(Reading::Known).await?);
        if state.is_known && !self.rests(&state) {
            *state = self.start(Reading::Now).await?;
        }
        let (mut preview, looked) = self.look_from(state).await?;
        // What could not be read may be all there is to do.
        preview.is_settled &= looked.0.trouble.is_none();
        Ok((preview, looked))
    }

    async fn look_from(&self, mut state: Box<State>) -> Result<(KeyPreview, Looked), Trouble> {
        if machine::next(self.wanted, &state.seen, self.now) == Next::Prove
            && let Some(value) = &state.value
        {
            let key = self.coder.prove_key(value).await?;
            state.seen.proved(key);
        }
        let known = settle::known(self.wanted, &state.seen);
        if copies::newer_key(self.wanted, &state.seen, &known).is_some() {
            self.look_anew(&mut state).await?;
        }
        self.note_others(&mut state).await;
        let preview = preview(self.wanted, &state.seen, self.now).ok_or_else(unsettled)?;
        Ok((preview, Looked(state)))
    }

    /// Reads the list, and then the Secret, anew.
    async fn look_anew(&self, state: &mut State) -> Result<(), Trouble> {
        let listing = self.coder.list_keys(self.wanted.organization_id, true, self.now).await?;
        let secret = self.read(state).await?;
        state.seen.looked(listing.keys, secret, listing.at);
        Ok(())
    }

    /// What may be lost, and is there, may be another object's: then it is not revoked. Where that cannot be determined, the key is
    /// skipped in this reconcile, and everything else goes on.
    async fn note_others(&self, state: &mut State) {
        let seen = &mut state.seen;
        let records = [seen.stored(self.wanted), Some(&seen.mirror)].into_iter().flatten();
        let lost = records.flat_map(|it| {
            let intent = it.intent.iter().map(|it| Retiring { held: it.held(), since: it.since, lost: true });
            it.retiring.iter().filter(|it| it.lost).cloned().chain(intent)
        });
        // An intent that a newer record has completed is no doubt any more.
        let current = copies::newest(self.wanted, seen).current;
        let is_current = |it: &Retiring| {
            current.as_ref().is_some_and(|current| current.is_called(&it.held.name, it.held.organization_id))
        };
        let lost: Vec<Retiring> =
            lost.filter(|it| seen.find(&it.held.name).is_some() && !is_current(it)).collect();
        for retiring in lost {
            let is_ours_by_name = self.wanted.names.is_ours(&retiring.held.name);
            match is_anothers(self.around, &retiring, is_ours_by_name).await {
                Ok(true) => seen.others.push(retiring.held),
                Ok(false) => {}
                Err(trouble) => {
                    seen.failed(&retiring.held);
                    state.trouble = Some(trouble);
                }
            }
        }
    }

    async fn start(&self, reading: Reading) -> Result<State, Trouble> {
        let seen = Seen::new(SecretSeen::default(), self.mirror.clone(), Vec::new(), self.now);
        let mut state = State::new(seen);
        let known = match reading {
            Reading::Known => self.secret.last_read(&self.wanted.secret).await,
            Reading::Now => None,
        };
        state.is_known = known.is_some();
        let secret = match known {
            Some(known) => self.with_keeper(state.take(Some(known))).await?,
            None => self.read(&mut state).await?,
        };
        let listing = self.coder.list_keys(self.wanted.organization_id, false, self.now).await?;
        (state.seen.listed, state.seen.listed_at) = (listing.keys, listing.at);
        state.seen.own_intent = self.coder.own_intents().get(&self.wanted.names.uid);
        state.seen.secret = secret;
        state.seen.remembered.clone_from(&self.remembered);
        state.seen.writes_status = self.around.writes_status();
        let newest = copies::newest(self.wanted, &state.seen);
        let is_outdated = copies::is_rolled_back(self.wanted, &state.seen, &newest);
        let former = newest.secret.clone().filter(|it| *it != self.wanted.secret);
        if let Some(place) = former.filter(|_| state.seen.secret.checksum.is_none() || is_outdated) {
            let read = self.secret.read(&place).await?;
            state.former = read.as_ref().and_then(|it| it.value.clone());
            state.seen.former = read.map(|it| it.seen());
        }
        state.seen.remember(&newest);
        self.around.remember(&newest);
        state.seen.pods.clone_from(&self.pods);
        if let Some(key) = state.seen.recorded(self.wanted, &newest) {
            state.seen.proof = Proof::Before(key.clone());
        }
        Ok(state)
    }

    /// Reads the Secret, and who else keeps it.
    async fn read(&self, state: &mut State) -> Result<SecretSeen, Trouble> {
        let seen = state.take(self.secret.read(&self.wanted.secret).await?);
        self.with_keeper(seen).await
    }

    async fn with_keeper(&self, mut seen: SecretSeen) -> Result<SecretSeen, Trouble> {
        let (secret, uid) = (&self.wanted.secret, &self.wanted.names.uid);
        let holder = seen.record.as_ref().map(|it| it.holder.as_str()).filter(|it| !it.is_empty());
        if let Some(holder) = holder.filter(|_| seen.is_users(uid)) {
            seen.keeper = self.around.keeper(&secret.name, holder).await?;
        }
        Ok(seen)
    }

    async fn write(&self, state: &mut State, write: SecretWrite) -> Result<(), Trouble> {
        let SecretWrite { record, value, begins: _, leaves } = write;
        self.leave(&leaves).await;
        let put = match value {
            Value::Keep => None,
            Value::Minted => state.minted.clone(),
            Value::Former => state.former.clone(),
        };
        let (place, version) = (&self.wanted.secret, state.version.as_deref());
        let written = match &put {
            // coderd shows the value once, and it is in no Secret yet.
            Some(minted) if value == Value::Minted => {
                self.secret.write_surely(place, &record, minted, version).await
            }
            _ => self.secret.write(place, &record, put.as_ref(), version).await,
        };
        let written = match written {
            Ok(written) => written,
            Err(unwritten) => {
                if value == Value::Minted && !unwritten.may_be_done {
                    self.take_back(state).await;
                }
                return Err(unwritten.into());
            }
        };
        match written {
            Written::Done(version) => {
                state.version = Some(version);
                state.value = put.or_else(|| state.value.take());
                state.seen.wrote(&record, &value);
                self.around.remember(&record);
                state.drop_given_up();
                self.remember(state);
            }
            Written::Conflict => {
                let secret = self.read(state).await?;
                state.seen.overtaken(secret);
            }
        }
        Ok(())
    }

    /// Revokes a key that was minted just now and whose value the Secret does not take. The value shows which key that is. The intent
    /// stays on record and is no longer this process's own: the next reconcile writes the Secret before coderd is asked again.
    /// Where the key cannot be revoked, the next reconcile looks for it by the intent.
    async fn take_back(&self, state: &mut State) {
        let (Some(minted), Some(value)) = (state.seen.minted.take(), state.minted.take()) else { return };
        let held = minted.intent.held();
        let revoked = match self.coder.prove_key(&value).await {
            Ok(Some(key)) => {
                let retiring = Retiring {
                    held: Held { id: key.id, ..held.clone() },
                    since: minted.intent.since,
                    lost: true,
                };
                revoke(self.coder, &retiring, self.wanted.names.is_ours(&held.name), self.now).await
            }
            Ok(None) => Ok(Revoked::Absent),
            Err(trouble) => Err(trouble),
        };
        if let Ok(how @ (Revoked::Done | Revoked::Absent | Revoked::NotOurs)) = revoked {
            self.around.revoked(&held, how, &Why::Unwritten).await;
            self.around.forget_minted(&held.name);
            state.seen.own_intent = None;
            self.remember(state);
        }
    }

    async fn leave(&self, leaves: &[Held]) {
        for held in leaves {
            self.around.leave(held).await;
        }
    }

    async fn mint(&self, state: &mut State, intent: &Intent) -> Result<(), Trouble> {
        let Wanted { organization_id, tags, .. } = self.wanted;
        let before = state.seen.own_intent.clone();
        let was_asked = state.seen.came(intent) != Some(Came::Nothing);
        // A pass may be given up while coderd is asked.
        state.seen.unclear();
        self.remember(state);
        match self.coder.mint_key(*organization_id, &intent.name, tags).await {
            Minting::Minted(value) => {
                let key = self.minted(intent, &value).await;
                state.seen.minted(intent, checksum(&value), key);
                state.minted = Some(value);
                self.around.note_minted(&intent.name);
            }
            // What became of it is seen when it is looked; if that fails too, in the next pass.
            Minting::Taken if was_asked => {}
            Minting::Unclear(trouble) if !state.was_unclear => {
                state.was_unclear = true;
                state.unclear = Some((intent.name.clone(), trouble));
            }
            Minting::Unclear(trouble) => return Err(trouble),
            // Nobody but us could have asked for it on our behalf, and we had not.
            Minting::Taken => {
                state.seen.taken();
                self.remember(state);
                self.doubt(state, intent).await?;
            }
            Minting::Refused(trouble) => {
                state.seen.own_intent = before;
                self.remember(state);
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// The key that was made. A list tells its id, except for a key that only somebody else uses: its object is known by the id,
    /// which is therefore written down together with the value. Without the answer the value is written all the same.
    async fn minted(&self, intent: &Intent, value: &SecretString) -> LiveKey {
        let proved = match self.wanted.policy {
            Policy::Recreate => None,
            Policy::OnRequest => self.coder.prove_key(value).await.ok().flatten(),
        };
        proved.unwrap_or_else(|| LiveKey::of_intent(intent, self.wanted, self.now))
    }

    /// Names a key that has the name of our intent, though the list did not have it: of a request that a proxy has repeated coderd
    /// refuses the second one, and nobody hears of the first. Whoever else asks on behalf of this object has changed the intent.
    async fn doubt(&self, state: &mut State, intent: &Intent) -> Result<(), Trouble> {
        let secret = self.read(state).await?;
        // Where there is no Secret, nobody else has set out for a key since our intent was written into the status.
        let is_alone = secret.owner.is_none() && state.seen.mirror.intent.as_ref() == Some(intent);
        let is_still_ours =
            is_alone || secret.record.as_ref().is_some_and(|it| it.intent.as_ref() == Some(intent));
        state.seen.reread(secret);
        let held = intent.held();
        if is_still_ours
            && !self.wanted.names.is_ours(&held.name)
            && !self.around.is_of_another(&held).await?
        {
            self.around.revoked(&held, Revoked::Doubtful, &Why::Taken).await;
        }
        Ok(())
    }

    /// For the passes after this one.
    fn remember(&self, state: &State) {
        self.coder.own_intents().set(&self.wanted.names.uid, state.seen.own_intent.clone());
    }

    /// One that cannot be revoked now is in nobody's way.
    async fn revoke(&self, state: &mut State, retiring: &Retiring) {
        let held = &retiring.held;
        let is_ours_by_name = self.wanted.names.is_ours(&held.name);
        let done = match is_anothers(self.around, retiring, is_ours_by_name).await {
            Ok(true) => Ok(Revoked::NotOurs),
            Ok(false) if held.place.is_same(&self.wanted.place) => {
                revoke(self.coder, retiring, is_ours_by_name, self.now).await
            }
            Ok(false) => self.around.revoke_elsewhere(retiring).await,
            Err(trouble) => Err(trouble),
        };
        match done {
            Ok(how) => {
                // While a request of ours may still arrive, it is looked for once more, and named then.
                let may_come = retiring.since.checked_add(AROUND_INTENT).is_ok_and(|it| self.now < it);
                let how = if how == Revoked::Doubtful && may_come { Revoked::NotOurs } else { how };
                let current = || copies::newest(self.wanted, &state.seen).current.map(|it| it.name);
                let why = if retiring.lost { Why::Lost } else { Why::Replaced(current()) };
                self.around.revoked(held, how, &why).await;
                match how {
                    Revoked::Done | Revoked::Absent | Revoked::NotOurs | Revoked::Doubtful => {
                        state.seen.gone(held);
                    }
                    Revoked::OutOfReach => state.seen.left(held),
                }
            }
            Err(trouble) => {
                state.seen.failed(held);
                state.trouble = Some(trouble);
            }
        }
    }
}

impl State {
    fn new(seen: Seen) -> Self {
        Self {
            seen,
            is_known: false,
            value: None,
            version: None,
            former: None,
            minted: None,
            trouble: None,
            unclear: None,
            was_unclear: false,
        }
    }

    /// Takes a Secret in.
    fn take(&mut self, read: Option<SecretRead>) -> SecretSeen {
        let seen = read.as_ref().map(SecretRead::seen).unwrap_or_default();
        self.version = read.as_ref().map(|it| it.version.clone());
        self.value = read.and_then(|it| it.value);
        seen
    }

    /// A value that is written, or whose key is given up, is not kept.
    fn drop_given_up(&mut self) {
        if self.seen.minted.is_none() {
            self.minted = None;
        }
    }
}

/// Whether a key that we may have made, and whose value nobody has, is somebody else's: then it was there before we asked.
pub async fn is_anothers(
    around: &Around<'_>,
    retiring: &Retiring,
    is_ours_by_name: bool,
) -> Result<bool, Trouble> {
    let is_doubtful = retiring.lost && !is_ours_by_name;
    if is_doubtful { around.is_of_another(&retiring.held).await } else { Ok(false) }
}

fn unsettled() -> Trouble {
    Trouble::Blocked(Blocked {
        reason: api::Reason::Progressing,
        message: "another operator is changing this key; reconciling again".to_owned(),
    })
}
