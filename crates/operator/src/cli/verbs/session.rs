//! One run of a verb: manifests in, deployments and assessments out.

use std::sync::Arc;

use engine::{Assessment, Door, Runner};
use futures::{StreamExt as _, stream};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Duration, Instant, sleep},
};

use super::{
    approvals::Approvals,
    targets::{Planes, Sessions, Target},
};
use crate::{
    args::{DeploymentArgs, GivenUrl, Input, Output, UrlSource},
    cli::{
        address::workspace_warning,
        deployment::{self, DeploymentRef},
        exit::{Exit, Failure},
        file_cluster::FileCluster,
        manifests::{self, Manifests, NOT_APPLIED, Placed, Severity, SkipReason, Skipped, Sources, in_order},
        render::{Row, View},
        secrets,
        terminal::{WARNING, can_ask, print, print_styled, say, say_as, say_styled},
    },
};

/// How many manifests are compared side by side.
const READ_AT_ONCE: usize = 16;
/// How often a dependency is looked for.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub(super) struct Session {
    sources: Sources,
    deployment: DeploymentArgs,
    pub(super) quiet: bool,
    verbose: bool,
    sessions: Sessions,
}

impl Session {
    /// Runs `work`, and signs out of every deployment afterwards, however it ended.
    pub(super) async fn run(
        input: Input,
        quiet: bool,
        verbose: bool,
        work: impl AsyncFnOnce(&Self) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let Input { files, deployment } = input;
        Self::run_on(Sources::Files(files), deployment, quiet, verbose, work).await
    }

    /// The same for manifests from anywhere.
    pub(super) async fn run_on(
        sources: Sources,
        deployment: DeploymentArgs,
        quiet: bool,
        verbose: bool,
        work: impl AsyncFnOnce(&Self) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let session = Self { sources, deployment, quiet, verbose, sessions: Sessions::default() };
        let done = tokio::select! {
            done = work(&session) => done,
            interrupted = interruption() => Err(interrupted),
        };
        // A second interruption ends that, too.
        tokio::select! {
            () = session.sessions.close() => {}
            _ = interruption() => {}
        }
        done
    }

    /// Finds the deployment of every manifest. Waits until `deadline` for what may still come.
    pub(super) async fn open(&self, access: Access, deadline: Instant) -> Result<Opened, Failure> {
        let Manifests { mut subjects, planes, secrets, config_maps, mut skipped, unsupported } =
            self.load()?;
        let secrets_given =
            secrets::read(&self.deployment.secrets, |name| std::env::var_os(name)).map_err(Failure::usage)?;
        skipped.extend(unsupported);
        let file_planes = planes.0.iter().map(|(named, (plane, _))| (named.clone(), plane.clone())).collect();
        let files = FileCluster {
            given: secrets_given,
            secrets,
            planes: file_planes,
            config_maps,
            ..FileCluster::default()
        };
        let files = Arc::new(files);
        subjects.extend(planes.licenses());
        let has_cluster = planes.has_managed() && files.cluster().await.is_ok();
        subjects.extend(planes.objects(&subjects, has_cluster));
        in_order(&mut subjects);
        for suspended in subjects.extract_if(.., |it| it.subject.is_suspended()) {
            skipped.push(suspended.skipped(SkipReason::Suspended, "suspended"));
        }
        if let Access::Write { .. } = access {
            for placed in subjects.extract_if(.., |it| it.subject.runner() == Runner::Controller) {
                skipped.push(placed.skipped(SkipReason::Controller, NOT_APPLIED));
            }
        }
        for skipped in &skipped {
            self.note(&format!("skipped {skipped}"));
        }
        for note in planes.notes(has_cluster) {
            self.note(&note);
        }
        let mut targets = Vec::new();
        if let Some(given) = self.deployment.given_url() {
            let external = |it: &Placed| planes.external_url(&it.plane());
            let taken: Vec<Placed> = subjects.extract_if(.., |it| given.takes(external(it))).collect();
            let is_unconfirmed = taken.iter().any(|it| given.is_unconfirmed(external(it)));
            if given.source == UrlSource::Environment && !subjects.is_empty() {
                self.note(&given.ignored());
            }
            if !taken.is_empty() {
                targets.push(self.open_given(&given, taken, is_unconfirmed, access).await?);
            }
        }
        targets.extend(self.open_planes(subjects, &files, deadline).await?);
        for target in &mut targets {
            if let Some(note) = target.settle(&files).await? {
                self.note(&note);
            }
        }
        Ok(Opened { targets, skipped })
    }

    /// The deployment at the given address. Nothing is sent to an address that needs a confirmation and cannot get one.
    async fn open_given(
        &self,
        given: &GivenUrl,
        subjects: Vec<Placed>,
        is_unconfirmed: bool,
        access: Access,
    ) -> Result<Target, Failure> {
        let is_from_environment =
            given.source == UrlSource::Environment || self.deployment.access.token_file.is_none();
        if let Some(warning) = workspace_warning(|it| std::env::var_os(it)).filter(|_| is_from_environment) {
            self.warn(&warning);
        }
        if is_unconfirmed {
            if let Access::Write { yes } = access
                && (yes || !can_ask())
            {
                return Err(Failure::refused(given.refusal(yes)));
            }
            self.note(&given.announcement());
        }
        let client = deployment::client(&self.deployment.access, &given.url)?;
        let deployment = DeploymentRef::given(given.shown());
        let host = is_unconfirmed.then(|| given.host().to_owned());
        Ok(Target { host, ..Target::open(deployment, client, None, subjects).await })
    }

    /// The control planes of manifests, from the files and the cluster.
    async fn open_planes(
        &self,
        subjects: Vec<Placed>,
        files: &FileCluster,
        deadline: Instant,
    ) -> Result<Vec<Target>, Failure> {
        let mut planes = Planes::default();
        let mut noted = String::new();
        while let Err(unopened) = planes.open(&subjects, files, &self.sessions).await {
            if !unopened.may_come || Instant::now() >= deadline {
                return Err(unopened.failure);
            }
            let why = format!("waiting: {:#}", unopened.failure.error);
            if why != noted {
                self.note(&why);
                noted = why;
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(planes.targets(subjects).await)
    }

    /// The manifests, without a mistake, and all of them handled or to be skipped. No request was sent yet.
    fn load(&self) -> Result<Manifests, Failure> {
        let loaded = manifests::load(&self.sources, self.deployment.given_url().as_ref())
            .map_err(|error| Failure { error, exit: Exit::Usage })?;
        let manifests = loaded.map_err(|mistakes| {
            for mistake in &mistakes {
                say_styled(&format!("{}\n", mistake.render(Severity::Error)));
            }
            let errors =
                if mistakes.len() == 1 { "1 error".to_owned() } else { format!("{} errors", mistakes.len()) };
            Failure::usage(format!("{errors} in the manifests; nothing was changed"))
        })?;
        let Manifests { subjects, unsupported, .. } = &manifests;
        if unsupported.is_empty() || self.deployment.skip_unsupported && !subjects.is_empty() {
            return Ok(manifests);
        }
        let advice = if subjects.is_empty() {
            "There is no other manifest in the files to compare"
        } else {
            "Leave them out, or give --skip-unsupported to skip them and handle the others"
        };
        let lines: Vec<String> = unsupported.iter().map(|it| format!("  {it}")).collect();
        Err(Failure::usage(format!(
            "plan, apply and verify cannot handle these manifests; nothing was changed:\n{}\n{advice}",
            lines.join("\n")
        )))
    }

    /// Prints the result.
    pub(super) fn show(&self, result: &View<'_>) -> Result<(), Failure> {
        let text = result.render(self.deployment.output, self.verbose)?;
        let printed = match self.deployment.output {
            Output::Text => print_styled(&text),
            Output::Json | Output::Yaml | Output::Markdown => print(&text),
        };
        printed.map_err(anyhow::Error::from)?;
        Ok(())
    }

    /// Shows the plan before it is applied. Programs get it with its results, once; a person who is asked has to see it.
    pub(super) fn announce(&self, result: &View<'_>, asks: bool) -> Result<(), Failure> {
        if self.deployment.output == Output::Text {
            self.show(result)
        } else {
            if asks {
                say_styled(result.render(Output::Text, self.verbose)?.trim_end());
            }
            Ok(())
        }
    }

    /// Prints the results for programs.
    pub(super) fn conclude(&self, result: &View<'_>) -> Result<(), Failure> {
        if self.deployment.output == Output::Text { Ok(()) } else { self.show(result) }
    }

    pub(super) fn note(&self, line: &str) {
        if !self.quiet {
            say(line);
        }
    }

    fn warn(&self, line: &str) {
        if !self.quiet {
            say_as(WARNING, "warning", line);
        }
    }
}

/// What a verb does with a deployment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Access {
    Read,
    /// `yes`: without asking.
    Write {
        yes: bool,
    },
}

/// The deployments of a set of manifests.
pub(super) struct Opened {
    pub(super) targets: Vec<Target>,
    pub(super) skipped: Vec<Skipped>,
}

/// Assesses every manifest. The results are in the order of the manifests; lists of several organizations are read side by
/// side.
pub(super) async fn assess(targets: &mut [Target], approvals: &Approvals) -> (Vec<Assessment>, Vec<Row>) {
    let (mut assessments, mut rows) = (Vec::new(), Vec::new());
    for Target { deployment, coder, subjects, .. } in targets {
        let (deployment, coder) = (&*deployment, &*coder);
        let assessed = stream::iter(subjects).map(async |placed| {
            let assessment = approvals.grant(placed.subject.assess(coder, Door::CommandLine).await);
            (Row::assessed(placed, deployment, &assessment), assessment)
        });
        let assessed: Vec<_> = assessed.buffered(READ_AT_ONCE).collect().await;
        for (row, assessment) in assessed {
            rows.push(row);
            assessments.push(assessment);
        }
    }
    (assessments, rows)
}

/// The result for the deployments of a command.
pub(super) fn view<'a>(targets: &'a [Target], rows: &'a [Row], skipped: &'a [Skipped]) -> View<'a> {
    View::new(targets.iter().map(|it| &it.deployment), rows, skipped)
}

/// Returns when the process is interrupted.
async fn interruption() -> Failure {
    let interrupted = async || {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::io::Result::Ok(())
    };
    match interrupted().await {
        Ok(()) => {
            let error = anyhow::anyhow!("interrupted: changes that were applied stay");
            Failure { error, exit: Exit::Failure }
        }
        // Without a handler the signal ends the process by itself.
        Err(_) => std::future::pending().await,
    }
}
