//! `export`: the objects of a deployment as manifests, in files or in one stream.

mod files;
mod text;

use api::Mode;
use client::Class;
use engine::{
    Coder, Trouble,
    coder::Promises,
    export::{Export, ExportScope, Exported},
    kinds,
    pipeline::export::LeftOut,
};

use super::targets::RATE_LIMIT_WAIT;
use crate::{
    args::{self, ExportMode},
    cli::{
        address::shown,
        deployment::{self, DeploymentRef},
        exit::{Exit, Failure},
        manifests::{Sources, unfit},
        terminal::{WARNING, print, say, say_as},
    },
};

pub(super) async fn export(args: args::Export, quiet: bool) -> Result<Exit, Failure> {
    let scope = scope(&args)?;
    let is_whole = scope.kinds.is_empty() && scope.organization.is_none();
    let client = deployment::client(&args.access, &args.url)?;
    let mut deployment = DeploymentRef::given(shown(&args.url));
    deployment.identify(&client).await;
    let coder = Coder::new(client.waiting_up_to(RATE_LIMIT_WAIT), Promises::default());
    let coder = match deployment.id() {
        Some(id) => coder.expecting(id),
        None => coder,
    };
    let mut export = kinds::export(&scope, &coder).await.map_err(failure)?;
    leave_out_invalid(&mut export)?;
    let written = if let Some(folder) = &args.output_dir {
        let written = files::write(folder, &deployment, &export, (is_whole, args.overwrite))?;
        format!("{written} in {}", folder.display())
    } else {
        print(&text::stream(&deployment, &export)).map_err(anyhow::Error::from)?;
        text::count(export.manifests.len(), "manifest")
    };
    if !quiet {
        tell(&export);
        say(&format!("{written} of {deployment}"));
    }
    let Export { unread, .. } = export;
    if unread.is_empty() {
        return Ok(Exit::Success);
    }
    let lines: Vec<String> = unread.iter().map(line).collect();
    let error = anyhow::anyhow!("the export is incomplete; not read:\n{}", lines.join("\n"));
    Err(Failure { error, exit: Exit::Failure })
}

fn scope(args: &args::Export) -> Result<ExportScope, Failure> {
    let known = api::kinds::ALL;
    let mut kinds = std::collections::BTreeSet::new();
    for wanted in &args.kinds {
        let found = known.iter().find(|it| it.eq_ignore_ascii_case(wanted));
        let unknown = || Failure::usage(format!("no kind {wanted}: there are {}", known.join(", ")));
        kinds.insert((*found.ok_or_else(unknown)?).to_owned());
    }
    let mode = args.mode.map(|it| match it {
        ExportMode::Enforce => Mode::Enforce,
        ExportMode::Observe => Mode::Observe,
    });
    Ok(ExportScope {
        control_plane: args.control_plane.clone(),
        namespace: args.namespace.clone(),
        kinds,
        organization: args.organization.clone(),
        mode,
    })
}

/// Why there is no export at all.
fn failure(trouble: Trouble) -> Failure {
    let exit = match &trouble {
        // The only organization does not exist.
        Trouble::Blocked(blocked) if blocked.reason == api::Reason::ReferenceNotFound => Exit::Usage,
        Trouble::Blocked(_) => Exit::Blocked,
        Trouble::Remote(error) if error.class() == Class::Invalid => Exit::Usage,
        Trouble::Remote(_) | Trouble::Stale => Exit::Failure,
    };
    Failure { error: anyhow::Error::msg(trouble.into_blocked().message), exit }
}

/// Moves manifests that `plan` would refuse among those that are left out: a name that only Coder takes, a text that looks like a
/// secret value.
fn leave_out_invalid(export: &mut Export) -> Result<(), Failure> {
    let what = |it: &Exported| format!("{} {}", it.kind, it.name);
    let texts = export.manifests.iter().map(|it| (what(it), text::manifest(&it.manifest)));
    let texts: Vec<(String, String)> = texts.collect();
    if texts.is_empty() {
        return Ok(());
    }
    let mistakes = unfit(&Sources::Objects(texts))?;
    for mistake in &mistakes {
        let object = mistake.place.file();
        if export.manifests.iter().any(|it| what(it) == object) {
            let why = format!("a manifest cannot declare it: {}", mistake.message);
            export.left_out.push(LeftOut { what: object.to_owned(), why });
            export.manifests.retain(|it| what(it) != object);
        }
    }
    Ok(())
}

/// Reports what is not in the manifests.
fn tell(export: &Export) {
    for note in &export.notes {
        say_as(WARNING, "warning", note);
    }
    for exported in &export.manifests {
        for note in &exported.notes {
            say(&format!("note: {} {}: {note}", exported.kind, exported.name));
        }
    }
    for left_out in &export.left_out {
        say(&format!("not exported: {}: {}", left_out.what, left_out.why));
    }
    let needed = text::needed(export);
    if !needed.is_empty() {
        say("supply these Secrets, in the cluster or with --secret NAME/KEY=SOURCE:");
        for line in &needed {
            say(&format!("  {line}"));
        }
    }
}

fn line(left_out: &LeftOut) -> String {
    format!("  {}: {}", left_out.what, left_out.why)
}
