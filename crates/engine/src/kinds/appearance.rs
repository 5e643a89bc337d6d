//! `CoderAppearance`: what the dashboard shows of its owner. One per deployment; it always exists.

mod export;

use api::CoderAppearance;
use client::appearance::{AnnouncementBanner, UpdateAppearance};
use serde::Serialize;
use uuid::Uuid;

use super::mapping::APPEARANCE;
use crate::{
    coder::Coder,
    kind::Kind,
    pipeline::{
        diff::Diff,
        export::{ExportPlace, KindExport, Listed},
        gate::Gate,
        outcome::{Invalid, Trouble},
        plan::{Action, Impact, Plan, Step},
    },
};

#[derive(Debug)]
pub struct Appearance;

/// A banner as a manifest spells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Banner {
    enabled: bool,
    message: String,
    background_color: String,
}

#[derive(Debug)]
pub struct Desired {
    application_name: Option<String>,
    logo_url: Option<String>,
    banners: Option<Vec<Banner>>,
}

#[derive(Debug)]
pub struct Observed {
    /// The deployment's id.
    id: Uuid,
    application_name: String,
    logo_url: String,
    banners: Vec<Banner>,
}

impl Kind for Appearance {
    type Manifest = CoderAppearance;
    type Desired = Desired;
    type Observed = Observed;
    /// All of it: coderd clears what is absent.
    type Effect = UpdateAppearance;

    const GATE: Option<Gate> = Some(APPEARANCE);
    const RANK: u8 = 1;

    fn target(_manifest: &CoderAppearance) -> String {
        "appearance".to_owned()
    }

    fn desire(manifest: &CoderAppearance) -> Result<Desired, Invalid> {
        let spec = &manifest.spec;
        for (index, banner) in spec.announcement_banners.iter().flatten().enumerate() {
            if !is_colour(&banner.background_color) {
                let field = format!("spec.announcementBanners[{index}].backgroundColor");
                return Err(Invalid::new(&field, "must be # and six hexadecimal digits, as #007a33"));
            }
        }
        let banners = spec.announcement_banners.as_ref().map(|banners| {
            let spelled = banners.iter().map(|it| Banner {
                enabled: it.is_enabled(),
                message: it.message.clone().unwrap_or_default(),
                background_color: it.background_color.clone(),
            });
            spelled.collect()
        });
        Ok(Desired {
            application_name: spec.application_name.clone(),
            logo_url: spec.logo_url.clone(),
            banners,
        })
    }

    async fn observe(_desired: &Desired, _held: Option<Uuid>, coder: &Coder) -> Result<Observed, Trouble> {
        let found = coder.client().appearance().await?;
        let banners = found.announcement_banners.into_iter().map(|it| Banner {
            enabled: it.enabled,
            message: it.message,
            background_color: it.background_color,
        });
        Ok(Observed {
            id: coder.deployment_id().await?,
            application_name: found.application_name,
            logo_url: found.logo_url,
            banners: banners.collect(),
        })
    }

    fn is_default(observed: &Observed) -> bool {
        observed.is_default()
    }

    fn id(observed: &Observed) -> Option<Uuid> {
        Some(observed.id)
    }

    fn plan(desired: &Desired, observed: &Observed) -> Plan<UpdateAppearance> {
        let mut diff = Diff::default();
        let name =
            diff.pick("applicationName", desired.application_name.as_ref(), &observed.application_name);
        let logo = diff.pick("logoURL", desired.logo_url.as_ref(), &observed.logo_url);
        let banners = diff.pick("announcementBanners", desired.banners.as_ref(), &observed.banners);
        if diff.is_empty() {
            return Plan::empty();
        }
        Plan::of(Step {
            action: Action::Update,
            impact: Impact::Safe,
            reason: "the appearance differs".to_owned(),
            changes: diff.changes,
            effect: UpdateAppearance {
                application_name: name.unwrap_or_else(|| observed.application_name.clone()),
                logo_url: logo.unwrap_or_else(|| observed.logo_url.clone()),
                announcement_banners: sent(&banners.unwrap_or_else(|| observed.banners.clone())),
            },
        })
    }

    fn plan_deletion(observed: &Observed) -> Plan<UpdateAppearance> {
        if Self::is_default(observed) {
            return Plan::empty();
        }
        Plan::deletion(
            Impact::Safe,
            UpdateAppearance {
                application_name: String::new(),
                logo_url: String::new(),
                announcement_banners: Vec::new(),
            },
        )
    }

    async fn apply(effect: &UpdateAppearance, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        coder.client().put_appearance(effect).await?;
        Ok(Some(coder.deployment_id().await?))
    }

    const LISTED: Listed = Listed::InDeployment;

    async fn export(_: &ExportPlace<'_>, coder: &Coder) -> Result<KindExport<CoderAppearance>, Trouble> {
        let found = coder.client().appearance().await?;
        Ok(KindExport::of(export::draft(found)))
    }
}

impl Observed {
    fn is_default(&self) -> bool {
        self.application_name.is_empty() && self.logo_url.is_empty() && self.banners.is_empty()
    }
}

fn sent(banners: &[Banner]) -> Vec<AnnouncementBanner> {
    let spelled = banners.iter().map(|it| AnnouncementBanner {
        enabled: it.enabled,
        message: it.message.clone(),
        background_color: it.background_color.clone(),
    });
    spelled.collect()
}

fn is_colour(text: &str) -> bool {
    text.strip_prefix('#').is_some_and(|it| it.len() == 6 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
