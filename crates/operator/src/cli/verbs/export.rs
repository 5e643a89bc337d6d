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

use serde_json::Value;

use super::targets::RATE_LIMIT_WAIT;
use crate::{
    args::{self, ExportMode},
    cli::{
        address::shown,
        deployment::{self, DeploymentRef},
        exit::{Exit, Failure},
        manifests::{Sources, secret_value, unfit},
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
        has_requested: args.all,
        organization: args.organization.clone(),
        mode,
        inlines_files: args.inline_files || args.output_dir.is_none(),
    })
}

/// Why there is no export at all.
fn failure(trouble: Trouble) -> Failure {
    let exit = match &trouble {
        // The only organization does not exist.
        Trouble::Blocked(blocked) if blocked.reason == api::Reason::ReferenceNotFound => Exit::Usage,
        Trouble::Blocked(_) => Exit::Blocked,
        Trouble::Remote(error) if error.class() == Class::Invalid => Exit::Usage,
        Trouble::Remote(_) | Trouble::Cluster(_) | Trouble::Stale => Exit::Failure,
    };
    Failure { error: anyhow::Error::msg(trouble.into_blocked().message), exit }
}

/// Moves manifests that `plan` would refuse among those that are left out: a name that only Coder takes, a text that looks like a
/// secret value.
fn leave_out_invalid(export: &mut Export) -> Result<(), Failure> {
    leave_out_secret_files(export);
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

/// Removes the sources of templates in whose files a secret value stands.
fn leave_out_secret_files(export: &mut Export) {
    for exported in &mut export.manifests {
        let inline = exported.manifest.pointer("/spec/source/files").and_then(Value::as_object);
        let inline =
            inline.into_iter().flatten().filter_map(|(path, it)| Some((path, it.as_str()?.as_bytes())));
        let beside = exported.files.iter().map(|(path, it)| (path, it.content.as_slice()));
        let found = inline.chain(beside).find_map(|(path, content)| {
            let what = secret_value(&String::from_utf8_lossy(content))?;
            Some(format!("{path} holds {what} in the open: move it to a variable that is sensitive"))
        });
        if let Some(why) = found {
            let left_out = exported.leave_out_source(&why);
            export.left_out.push(left_out);
        }
    }
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
