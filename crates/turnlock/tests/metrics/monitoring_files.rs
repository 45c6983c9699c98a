//! The files for operators: the dashboard and the alert rules.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use turnlock::metrics::{METRICS, MetricType};
use yaml_rust2::YamlLoader;

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(directory().join(file)).expect(file)
}

/// The queries of all panels, with the titles of the panels.
pub(crate) fn panel_queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let panels = dashboard["panels"].as_array().expect("panels");
    let queries = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().expect("targets");
        targets.iter().map(|target| (text(&panel["title"]), text(&target["expr"])))
    });
    queries.collect()
}

/// The expressions of all alert rules.
fn rule_queries() -> Vec<(String, String)> {
    let rules = YamlLoader::load_from_str(&read("alerts.yml")).expect("YAML");
    let groups = rules[0]["groups"].as_vec().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_vec().expect("rules"));
    let text = |value: &yaml_rust2::Yaml| value.as_str().expect("a text").to_owned();
    rules.map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect()
}

/// The series of a metric, as Prometheus names them.
fn series() -> HashSet<String> {
    let names = METRICS.iter().flat_map(|metric| {
        let suffixes: &[&str] = match metric.metric_type {
            MetricType::Histogram => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", metric.name))
    });
    names.collect()
}

/// The names of turnlock's series in a query.
fn names_in(query: &str) -> HashSet<&str> {
    let words = query.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    words.filter(|word| word.starts_with("turnlock")).collect()
}

pub(crate) async fn every_metric_of_the_files_exists_and_is_shown() {
    let (series, panels, rules) = (series(), panel_queries(), rule_queries());
    assert!(panels.len() >= METRICS.len() && rules.len() >= 5, "{panels:?} {rules:?}");
    for (title, query) in panels.iter().chain(&rules) {
        let names = names_in(query);
        assert!(!names.is_empty(), "{title} queries no metric: {query}");
        for name in names {
            assert!(series.contains(name), "{title} queries {name}, which does not exist");
        }
    }
    let shown: HashSet<_> = panels.iter().flat_map(|(_, query)| names_in(query)).collect();
    for metric in METRICS {
        let is_shown = shown.iter().any(|name| name.starts_with(metric.name));
        assert!(is_shown, "no panel shows {}", metric.name);
    }
}

pub(crate) async fn the_dashboard_is_well_formed() {
    let dashboard: Value = serde_json::from_str(&read("grafana-dashboard.json")).expect("JSON");
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: HashSet<_> =
        variables.iter().map(|variable| variable["name"].as_str().expect("a name")).collect();
    assert_eq!(names, HashSet::from(["datasource", "job", "store", "kind", "group"]));
    let data_source = |value: &Value| {
        assert_eq!(value["datasource"]["type"], "prometheus", "{value}");
        assert_eq!(value["datasource"]["uid"], "${datasource}", "{value}");
    };
    let (mut ids, mut places) = (HashSet::new(), HashSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "an id is used twice: {panel}");
        let place = &panel["gridPos"];
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| place[side].as_u64().expect("a number"));
        assert!(x + width <= 24, "{panel}");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(places.insert(cell), "two panels overlap: {panel}");
        }
        for field in ["title", "description"] {
            assert!(panel[field].as_str().is_some_and(|text| !text.is_empty()), "{panel}");
        }
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{panel}");
        data_source(panel);
        let mut references = HashSet::new();
        for target in panel["targets"].as_array().expect("targets") {
            data_source(target);
            assert!(references.insert(target["refId"].as_str().expect("a reference")), "{panel}");
            for variable in target["expr"].as_str().expect("a query").split('$').skip(1) {
                let name = variable
                    .split(|char: char| !char.is_alphanumeric() && char != '_')
                    .next()
                    .expect("a name");
                assert!(
                    name == "__rate_interval" || names.contains(name),
                    "unknown variable {name}: {target}"
                );
            }
        }
    }
}

pub(crate) async fn every_warning_is_in_the_manual() {
    let manual = read("../monitoring.md");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut directories = ["turnlock", "turnlock-redis", "turnlock-file", "turnlock-store"]
        .map(|name| crates.join(name).join("src"))
        .to_vec();
    let mut number = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("a source file");
            for event in source.split("tracing::warn!(").skip(1) {
                // The first literal. What follows a colon or a semicolon is advice.
                let message = event.split('"').nth(1).and_then(|text| text.split([':', ';']).next());
                let message = message.unwrap_or_else(|| panic!("no message in {}", path.display()));
                assert!(manual.contains(&format!("`{message}")), "{message:?} is not in docs/monitoring.md");
                number += 1;
            }
        }
    }
    assert!(number > 20, "only {number} warnings were found");
}

pub(crate) async fn the_alert_rules_pass_their_tests() {
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts-test.yml"]] {
        let output =
            Command::new("promtool").args(arguments).current_dir(directory()).output().expect("promtool");
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
    }
    let tests = read("alerts-test.yml");
    for (alert, _) in rule_queries() {
        assert!(tests.contains(&format!("alertname: {alert}")), "{alert} has no test");
    }
}
