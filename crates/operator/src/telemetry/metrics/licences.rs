//! What is shown of a control plane's licences, and of what they cover.

use std::fmt;

use engine::kinds::control_plane::{license::Licensing, status::MOST_LICENSES};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
    registry::Unit,
};

use crate::planes::PlaneName;

/// The figures of one control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// By the licence's own id, when it ends.
    ends: Vec<(String, i64)>,
    licenses: usize,
    /// By feature, whether it is switched on.
    features: Vec<(String, bool)>,
    users: Option<i64>,
    user_limit: Option<i64>,
}

impl From<&Licensing> for Figures {
    fn from(licensing: &Licensing) -> Self {
        let licenses = licensing.licenses.as_deref().unwrap_or_default();
        let shown = licenses.iter().take(MOST_LICENSES);
        let ends = shown.filter_map(|it| Some((it.uuid.clone(), it.expires?.as_second())));
        let summary = licensing.entitlements.as_ref();
        let features = summary.iter().flat_map(|it| &it.features);
        Self {
            ends: ends.collect(),
            licenses: licenses.len(),
            features: features.map(|(name, it)| (name.clone(), it.enabled)).collect(),
            users: summary.and_then(|it| it.users),
            user_limit: summary.and_then(|it| it.user_limit),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLicense {
    namespace: String,
    name: String,
    license: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFeature {
    namespace: String,
    name: String,
    feature: String,
}

pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>, planes: &[(PlaneName, Figures)]) -> fmt::Result {
    let (name, help) = ("control_plane_license_expiry_timestamp", "When a licence expires");
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for ((namespace, name), figures) in planes {
        for (license, ends) in &figures.ends {
            let (namespace, name, license) = (namespace.clone(), name.clone(), license.clone());
            family.encode_family(&OfLicense { namespace, name, license })?.encode_gauge(ends)?;
        }
    }
    let (name, help) = ("control_plane_feature_enabled", "Whether a licensed feature is switched on");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for ((namespace, name), figures) in planes {
        for (feature, enabled) in &figures.features {
            let (namespace, name, feature) = (namespace.clone(), name.clone(), feature.clone());
            family
                .encode_family(&OfFeature { namespace, name, feature })?
                .encode_gauge(&i64::from(*enabled))?;
        }
    }
    let licenses = |it: &Figures| i64::try_from(it.licenses).ok();
    gauge(encoder, planes, ("control_plane_licenses", "Licences that are installed"), licenses)?;
    gauge(encoder, planes, ("control_plane_users", "Users that count towards the limit"), |it| it.users)?;
    gauge(encoder, planes, ("control_plane_user_limit", "Users that the licences allow"), |it| it.user_limit)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    planes: &[(PlaneName, Figures)],
    (name, help): (&str, &str),
    value: impl Fn(&Figures) -> Option<i64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for ((namespace, name), figures) in planes {
        if let Some(value) = value(figures) {
            let of = Of { namespace: namespace.clone(), name: name.clone() };
            family.encode_family(&of)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
