//! The operator as users install it, by the chart and by kustomize.

mod chart;
mod lifecycle;
mod overrides;
mod site;
