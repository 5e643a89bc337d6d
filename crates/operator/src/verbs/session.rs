//! One run of a verb: manifests in, deployments and assessments out.

use engine::{Assessment, Door};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Duration, Instant, sleep},
};

use super::targets::{Plane, Planes, Sessions, Target};
use crate::{
    args::{Input, Output},
    deployment,
    exit::{Exit, Failure},
    lookup::Sources,
    manifests::{self, Manifests, Scope},
    render::{self, Row},
    secrets,
    terminal::{print, say},
};

/// How often it is looked whether what has to come first has come.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub(super) struct Session {
    input: Input,
    pub(super) quiet: bool,
    verbose: bool,
    sessions: Sessions,
}

impl Session {
    /// Does something with a session, and leaves no session at a deployment behind, whatever becomes of it.
    pub(super) async fn run(
        input: Input,
        quiet: bool,
        verbose: bool,
        work: impl AsyncFnOnce(&Self) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let session = Self { input, quiet, verbose, sessions: Sessions::default() };
        let done = tokio::select! {
            done = work(&session) => done,
            interrupted = interruption() => Err(interrupted),
        };
        // Who interrupts twice does not want to wait for that either.
        tokio::select! {
            () = session.sessions.close() => {}
            _ = interruption() => {}
        }
        done
    }

    /// The deployments with their manifests, all of which are without a mistake. Until `deadline` it is tried again where
    /// something has to come first.
    pub(super) async fn open(&self, deadline: Instant) -> Result<Vec<Target>, Failure> {
        let Manifests { mut subjects, planes, secrets, notes } = self.load()?;
        let given =
            secrets::read(&self.input.secrets, |name| std::env::var_os(name)).map_err(Failure::usage)?;
        for note in &notes {
            self.note(note);
        }
        for suspended in subjects.extract_if(.., |it| it.subject.is_suspended()) {
            self.note(&format!("{}: {} is suspended", suspended.place, suspended.subject.reference()));
        }
        if let Some(url) = &self.input.url {
            for (named, (_, place)) in &planes {
                self.note(&format!("{place}: CoderControlPlane {named} is passed over because of --url"));
            }
            let client = deployment::client(&self.input, url)?;
            let plane = Plane { namespace: None, name: None, url: url.to_string() };
            return Ok(vec![Target::new(plane, client, None, subjects)]);
        }
        let planes = planes.into_iter().map(|(named, (plane, _))| (named, plane)).collect();
        let sources = Sources { given, secrets, planes, ..Sources::default() };
        let mut planes = Planes::default();
        let mut told = String::new();
        while let Err(unopened) = planes.open(&subjects, &sources, &self.sessions).await {
            if !unopened.may_come || Instant::now() >= deadline {
                return Err(unopened.failure);
            }
            let why = format!("waiting: {:#}", unopened.failure.error);
            if why != told {
                self.note(&why);
                told = why;
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(planes.targets(subjects))
    }

    /// The manifests, all of them without a mistake. Nothing was asked of anybody yet.
    fn load(&self) -> Result<Manifests, Failure> {
        let scope = if self.input.url.is_some() { Scope::All } else { Scope::Plane };
        let loaded = manifests::load(&self.input.files, scope)
            .map_err(|error| Failure { error, exit: Exit::Usage })?;
        loaded.map_err(|mistakes| {
            let told: Vec<String> =
                mistakes.iter().map(|it| format!("{}: {}", it.place, it.message)).collect();
            Failure::usage(format!("nothing was changed, because of\n  {}", told.join("\n  ")))
        })
    }

    pub(super) fn show(&self, rows: &[Row]) -> Result<(), Failure> {
        let text = render::render(self.input.output, rows, self.verbose)?;
        print(&text).map_err(anyhow::Error::from)?;
        Ok(())
    }

    /// The plan before it is carried out. Programs get it with its results, once; a person who is asked has to see it.
    pub(super) fn announce(&self, rows: &[Row], asks: bool) -> Result<(), Failure> {
        if self.input.output == Output::Text {
            self.show(rows)
        } else {
            if asks {
                say(render::render(Output::Text, rows, self.verbose)?.trim_end());
            }
            Ok(())
        }
    }

    /// The results, for programs.
    pub(super) fn conclude(&self, rows: &[Row]) -> Result<(), Failure> {
        if self.input.output == Output::Text { Ok(()) } else { self.show(rows) }
    }

    pub(super) fn note(&self, line: &str) {
        if !self.quiet {
            say(line);
        }
    }
}

/// Assesses every manifest in order.
pub(super) async fn assess(targets: &mut [Target]) -> (Vec<Assessment>, Vec<Row>) {
    let (mut assessments, mut rows) = (Vec::new(), Vec::new());
    for Target { plane, world, subjects } in targets {
        for placed in subjects {
            let assessment = placed.subject.assess(world, Door::CommandLine).await;
            rows.push(Row::assessed(placed, plane, &assessment));
            assessments.push(assessment);
        }
    }
    (assessments, rows)
}

/// Ends when somebody wants the command to end before it is done.
async fn interruption() -> Failure {
    let told = async || {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::io::Result::Ok(())
    };
    match told().await {
        Ok(()) => Failure { error: anyhow::anyhow!("interrupted: what is done stays"), exit: Exit::Failure },
        // Then nobody can be heard, and the command is ended as any other.
        Err(_) => std::future::pending().await,
    }
}
