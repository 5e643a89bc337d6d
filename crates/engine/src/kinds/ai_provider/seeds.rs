//! AI providers that coderd makes from its environment at every start. Pure.
//!
//! coderd compares such a provider with its variables and does not start where they differ, so nothing else may change it.

use std::collections::BTreeMap;

use client::server_config::ServerConfig;

/// What variables of single providers begin with; the second is the older word.
const PREFIXES: [&str; 2] = ["CODER_AI_GATEWAY_", "CODER_AIBRIDGE_"];
/// What comes after the prefix in variables of numbered providers.
const NUMBERED: &str = "PROVIDER_";
/// The variables that make a provider, without their prefix, and the provider.
const SINGLE: [(&str, &str); 6] = [
    ("OPENAI_KEY", "openai"),
    ("ANTHROPIC_KEY", "anthropic"),
    ("BEDROCK_BASE_URL", "anthropic"),
    ("BEDROCK_REGION", "anthropic"),
    ("BEDROCK_ACCESS_KEY", "anthropic"),
    ("BEDROCK_ACCESS_KEY_SECRET", "anthropic"),
];

/// A provider that coderd makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seed {
    pub(super) provider: String,
    /// The variables that make it, for a person who removes them.
    pub(super) variables: String,
}

/// The providers of the options that coderd was started with.
pub(super) fn of_server(config: &ServerConfig) -> Vec<Seed> {
    // coderd shows one variable of the two words as set where either is.
    let is_set = |name: &str| {
        let words = PREFIXES.map(|it| format!("{it}{name}"));
        config.options.iter().any(|it| it.is_set() && words.contains(&it.env))
    };
    let single = SINGLE.iter().filter(|(name, _)| is_set(name)).map(|(name, provider)| {
        let [new, old] = PREFIXES.map(|it| format!("{it}{name}"));
        Seed { provider: (*provider).to_owned(), variables: format!("{new} (or {old})") }
    });
    let numbered = config.config.ai.bridge.providers.iter().enumerate().map(|(number, it)| {
        let provider = if it.name.is_empty() { &it.provider_type } else { &it.name };
        let [new, old] = PREFIXES.map(|it| format!("{it}{NUMBERED}{number}_*"));
        Seed { provider: provider.clone(), variables: format!("{new} (or {old})") }
    });
    single.chain(numbered).collect()
}

/// The providers of variables of a pod. A value is `None` where it comes from elsewhere.
pub(super) fn of_environment<'a>(
    variables: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Vec<Seed> {
    let mut seeds = Vec::new();
    // By prefix and number: the name and the type, as far as they are known.
    let mut numbered: BTreeMap<(&str, &str), [Option<&str>; 2]> = BTreeMap::new();
    for (variable, value) in variables {
        if let Some(provider) = single(variable) {
            seeds.push(Seed { provider: provider.to_owned(), variables: variable.to_owned() });
        } else if let Some((prefix, number, field)) = parts(variable) {
            let known = numbered.entry((prefix, number)).or_default();
            match field {
                "NAME" => known[0] = value,
                "TYPE" => known[1] = value,
                _ => {}
            }
        }
    }
    let numbered = numbered.into_iter().filter_map(|((prefix, number), [name, provider_type])| {
        let provider = name.filter(|it| !it.is_empty()).or(provider_type)?;
        let variables = format!("{prefix}{NUMBERED}{number}_*");
        Some(Seed { provider: provider.to_owned(), variables })
    });
    seeds.extend(numbered);
    seeds
}

/// The provider that a variable alone makes.
fn single(variable: &str) -> Option<&'static str> {
    let name = PREFIXES.iter().find_map(|it| variable.strip_prefix(it))?;
    SINGLE.iter().find(|(it, _)| *it == name).map(|(_, provider)| *provider)
}

/// The prefix, the number and the field of a variable of a numbered provider.
fn parts(variable: &str) -> Option<(&'static str, &str, &str)> {
    let (prefix, rest) = PREFIXES.iter().find_map(|it| Some((*it, variable.strip_prefix(it)?)))?;
    let (number, field) = rest.strip_prefix(NUMBERED)?.split_once('_')?;
    number.parse::<u16>().ok().map(|_| (prefix, number, field))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(seeds: &[Seed]) -> Vec<(&str, &str)> {
        seeds.iter().map(|it| (it.provider.as_str(), it.variables.as_str())).collect()
    }

    #[test]
    fn options_of_a_server_name_the_providers_that_it_makes() {
        let option = |env: &str, source: &str| json!({"env": env, "value_source": source});
        let config = json!({"options": [
                option("CODER_AI_GATEWAY_OPENAI_KEY", "env"),
                option("CODER_AIBRIDGE_BEDROCK_REGION", "yaml"),
                option("CODER_AI_GATEWAY_ANTHROPIC_KEY", ""),
                option("CODER_AI_GATEWAY_BEDROCK_MODEL", "default"),
                option("CODER_AI_GATEWAY_OPENAI_BASE_URL", "default"),
                option("CODER_ACCESS_URL", "env")],
            "config": {"ai": {"bridge": {"providers": [{"type": "google", "name": ""}, {"type": "openai", "name": "eu"}]}}}});
        let seeds = of_server(&serde_json::from_value(config).unwrap());
        assert_eq!(
            names(&seeds),
            [
                ("openai", "CODER_AI_GATEWAY_OPENAI_KEY (or CODER_AIBRIDGE_OPENAI_KEY)"),
                ("anthropic", "CODER_AI_GATEWAY_BEDROCK_REGION (or CODER_AIBRIDGE_BEDROCK_REGION)"),
                ("google", "CODER_AI_GATEWAY_PROVIDER_0_* (or CODER_AIBRIDGE_PROVIDER_0_*)"),
                ("eu", "CODER_AI_GATEWAY_PROVIDER_1_* (or CODER_AIBRIDGE_PROVIDER_1_*)"),
            ]
        );
    }

    #[test]
    fn variables_of_a_pod_name_the_providers_that_they_make() {
        let seeds = of_environment([
            ("CODER_AIBRIDGE_OPENAI_KEY", None),
            ("CODER_AI_GATEWAY_PROVIDER_0_TYPE", Some("anthropic")),
            ("CODER_AI_GATEWAY_PROVIDER_0_NAME", Some("eu")),
            ("CODER_AI_GATEWAY_PROVIDER_1_TYPE", Some("google")),
            ("CODER_AI_GATEWAY_PROVIDER_2_NAME", None),
            ("CODER_AI_GATEWAY_ENABLED", Some("true")),
            ("CODER_ACCESS_URL", Some("https://coder.example.com")),
        ]);
        assert_eq!(
            names(&seeds),
            [
                ("openai", "CODER_AIBRIDGE_OPENAI_KEY"),
                ("eu", "CODER_AI_GATEWAY_PROVIDER_0_*"),
                ("google", "CODER_AI_GATEWAY_PROVIDER_1_*"),
            ]
        );
    }
}
