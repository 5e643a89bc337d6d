//! One bed for a whole test run, and what a test may have for itself on it.

use std::{
    sync::{LazyLock, OnceLock, mpsc},
    thread,
};

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{Api, api::PostParams, runtime::wait::await_condition};

use crate::{
    bed::{Bed, BedInfo, Options},
    coderd::{Coderd, Flavour, FreshCoderd},
    parts::Parts,
    process::READY_WITHIN,
    run::Run,
};

/// The bed around this process, or one that is started for it and ends with it.
pub fn shared() -> Result<&'static BedInfo> {
    static SHARED: LazyLock<Result<BedInfo, String>> = LazyLock::new(|| match BedInfo::from_environment() {
        Some(info) => Ok(info),
        None => start_for_this_process().map_err(|error| format!("{error:#}")),
    });
    SHARED.as_ref().map_err(|error| anyhow!("{error}"))
}

/// The parts, for tests that start some of them.
pub fn parts() -> Result<&'static Parts> {
    static PARTS: LazyLock<Result<Parts, String>> = LazyLock::new(|| {
        let coder = std::env::var(crate::bed::CODER_VERSION).ok();
        Parts::ensure_with(coder.as_deref(), &|_| {}).map_err(|error| format!("{error:#}"))
    });
    PARTS.as_ref().map_err(|error| anyhow!("{error}"))
}

impl BedInfo {
    /// A coderd that nobody else uses, for tests that change a whole deployment.
    pub async fn coderd(&self, flavour: Flavour) -> Result<Coderd> {
        Coderd::start(run_of_this_process()?, parts()?, &self.postgres, flavour).await
    }

    /// The same without a first user, for tests of what happens before there is one.
    pub async fn fresh_coderd(&self, flavour: Flavour) -> Result<FreshCoderd> {
        FreshCoderd::start(run_of_this_process()?, parts()?, &self.postgres, flavour).await
    }

    /// The image of that name with the tag of the bed's Coder: any older one is refused on a database of this version.
    pub fn image(&self, name: &str) -> String {
        format!("{name}:{}", self.coder_version)
    }

    /// The same with the tag of the next patch release, for tests of an upgrade.
    pub fn newer_image(&self, name: &str) -> String {
        format!("{name}:{}", next_patch(&self.coder_version))
    }

    /// A database that nobody else uses.
    pub async fn database(&self) -> Result<String> {
        crate::postgres::create_database(&parts()?.postgres, &self.postgres).await
    }

    /// A namespace that nobody else uses, whose name starts with that word.
    pub async fn namespace(&self, word: &str) -> Result<String> {
        let mut namespace = Namespace::default();
        namespace.metadata.generate_name = Some(format!("{word}-"));
        let client = self.client().await?;
        let created = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("create a namespace {word}-…"))?;
        let name = created.metadata.name.context("the API server names what it creates")?;
        // Pods need the default service account, which the controller manager makes a moment later.
        let accounts = Api::<ServiceAccount>::namespaced(client, &name);
        let is_there = |account: Option<&ServiceAccount>| account.is_some();
        tokio::time::timeout(READY_WITHIN, await_condition(accounts, "default", is_there))
            .await
            .with_context(|| format!("namespace {name} got no default service account"))?
            .with_context(|| format!("wait for the default service account of {name}"))?;
        Ok(name)
    }
}

/// `v2.36.1` to `v2.36.2`.
fn next_patch(version: &str) -> String {
    let (minor, patch) = version.rsplit_once('.').unwrap_or((version, "0"));
    format!("{minor}.{}", patch.parse::<u32>().unwrap_or_default() + 1)
}

/// What this process starts beside the bed. Statics are not dropped; the reaper ends it with the process.
fn run_of_this_process() -> Result<&'static Run> {
    static RUN: OnceLock<Run> = OnceLock::new();
    static FIRST: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = FIRST.lock().map_err(|_| anyhow!("another test failed while it started its run"))?;
    if let Some(run) = RUN.get() {
        return Ok(run);
    }
    let run = Run::start()?;
    Ok(RUN.get_or_init(|| run))
}

/// A bed on a thread and runtime of its own: the runtimes of single tests come and go.
fn start_for_this_process() -> Result<BedInfo> {
    let parts = parts()?;
    let (sender, started) = mpsc::channel();
    thread::Builder::new()
        .name("bed".to_owned())
        .spawn(move || {
            let runtime = match tokio::runtime::Runtime::new().context("start a runtime for the bed") {
                Ok(runtime) => runtime,
                Err(error) => return sender.send(Err(error)).ok(),
            };
            runtime.block_on(async {
                match Bed::start(parts, Options { coderds: true }).await {
                    Ok(bed) => {
                        sender.send(Ok(bed.info().clone())).ok();
                        // Until the process ends, and the reaper with it.
                        std::future::pending::<()>().await;
                        Some(())
                    }
                    Err(error) => sender.send(Err(error)).ok(),
                }
            })
        })
        .context("start a thread for the bed")?;
    started.recv().context("the bed's thread ended")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_patch_release_is_one_higher() {
        assert_eq!(next_patch("v2.36.1"), "v2.36.2");
        assert_eq!(next_patch("v2.35.9"), "v2.35.10");
    }
}
