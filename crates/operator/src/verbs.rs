//! The verbs, and what they share: manifests in, assessments out.

mod apply;
mod plan;

use client::Client;
use engine::{Assessment, Decision, Door, Outcome, Verdict, World, world::Promises};

use crate::{
    args::{Args, Input, Verb},
    deployment,
    exit::{Exit, Failure},
    manifests::{self, Manifests, Placed},
    render::{self, Row},
    terminal::{print, say},
};

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let Args { verb, quiet, verbose } = args;
    match verb {
        Verb::Plan { input, exit_code } => {
            plan::plan(&Session::open(input, quiet, verbose)?, exit_code).await
        }
        Verb::Verify { input } => plan::plan(&Session::open(input, quiet, verbose)?, true).await,
        Verb::Apply { input, yes, wait, timeout } => {
            let session = Session::open(input, quiet, verbose)?;
            let wait = timeout.or_else(|| wait.then_some(apply::DEFAULT_TIMEOUT));
            apply::apply(&session, yes, wait).await
        }
        Verb::Run(args) => Ok(crate::run::run(args).await),
        Verb::Crds => {
            for crd in api::crds() {
                let text = serde_saphyr::to_string(&crd).map_err(anyhow::Error::from)?;
                print(&format!("---\n{text}")).map_err(anyhow::Error::from)?;
            }
            Ok(Exit::Success)
        }
    }
}

/// One run of a verb against one deployment.
struct Session {
    input: Input,
    client: Client,
    quiet: bool,
    verbose: bool,
}

impl Session {
    fn open(input: Input, quiet: bool, verbose: bool) -> Result<Self, Failure> {
        let client = deployment::client(&input)?;
        Ok(Self { input, client, quiet, verbose })
    }

    /// The manifests, all of them without a mistake. Nothing was asked of anybody yet.
    fn load(&self) -> Result<Vec<Placed>, Failure> {
        let loaded =
            manifests::load(&self.input.files).map_err(|error| Failure { error, exit: Exit::Usage })?;
        match loaded {
            Ok(Manifests { mut subjects, notes }) => {
                for suspended in subjects.extract_if(.., |it| it.subject.is_suspended()) {
                    self.note(&format!(
                        "{}: {} is suspended",
                        suspended.place,
                        suspended.subject.reference()
                    ));
                }
                for note in &notes {
                    self.note(note);
                }
                Ok(subjects)
            }
            Err(mistakes) => {
                let told: Vec<String> =
                    mistakes.iter().map(|it| format!("{}: {}", it.place, it.message)).collect();
                Err(Failure::usage(format!("nothing was changed, because of\n  {}", told.join("\n  "))))
            }
        }
    }

    fn world(&self, subjects: &[Placed]) -> World {
        let mut promises = Promises::default();
        for placed in subjects {
            placed.subject.promise(&mut promises);
        }
        World::new(self.client.clone(), promises)
    }

    /// Assesses every manifest in order.
    async fn assess(&self, subjects: &mut [Placed], world: &World) -> Vec<Assessment> {
        let mut assessments = Vec::new();
        for placed in subjects {
            assessments.push(placed.subject.assess(world, Door::CommandLine).await);
        }
        assessments
    }

    fn show(&self, rows: &[Row]) -> Result<(), Failure> {
        let text = render::render(self.input.output, rows, self.verbose)?;
        print(&text).map_err(anyhow::Error::from)?;
        Ok(())
    }

    fn note(&self, line: &str) {
        if !self.quiet {
            say(line);
        }
    }
}

/// What a script is told of an assessment; `differs` is what a difference means to the verb.
fn exit_of(assessment: &Assessment, differs: Exit) -> Exit {
    match &assessment.verdict {
        Verdict::Decided(Decision::Nothing) => Exit::Success,
        Verdict::Decided(Decision::Apply | Decision::Observe) => differs,
        Verdict::Decided(Decision::Refuse(_)) => Exit::Refused,
        Verdict::Stopped(outcome) => exit_of_outcome(outcome),
    }
}

fn exit_of_outcome(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Equal | Outcome::Applied | Outcome::Observed => Exit::Success,
        Outcome::Waiting(_) => Exit::Waiting,
        Outcome::Refused(_) => Exit::Refused,
        Outcome::Invalid(_) => Exit::Usage,
        Outcome::Failed(_) => Exit::Failure,
    }
}
