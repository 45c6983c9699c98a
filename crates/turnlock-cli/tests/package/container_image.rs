//! The container image, unpacked by its manifests as an engine does.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::clean_root::CleanRoot;
use crate::packages::{Case, Packages, cases, output};

pub(crate) const CASES: &[Case] = cases![
    the_image_runs_a_command_under_a_lock_as_its_own_user,
    both_manifests_of_the_image_name_the_same_files,
];

/// The case with a tool of container engines.
pub(crate) const SKOPEO: &[Case] = cases![skopeo_reads_the_image_in_both_formats];

/// The unpacked image file.
struct Layout(CleanRoot);

impl Layout {
    fn of(packages: &Packages) -> Self {
        let layout = CleanRoot::empty();
        output(Command::new("tar").arg("-xf").arg(&packages.image).arg("-C").arg(layout.path("")));
        Self(layout)
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.path(path)).unwrap()).unwrap()
    }

    /// The path of what a descriptor names, after a check of its digest and size.
    fn blob(&self, descriptor: &Value) -> String {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = format!("blobs/sha256/{digest}");
        let file = self.0.path(&path);
        assert!(output(Command::new("sha256sum").arg(&file)).starts_with(digest), "{path}");
        assert_eq!(fs::metadata(file).unwrap().len(), descriptor["size"].as_u64().unwrap(), "{path}");
        path
    }

    /// The configuration and the only layer.
    fn config_and_layer(&self) -> (String, String) {
        assert_eq!(self.json("oci-layout")["imageLayoutVersion"], "1.0.0");
        let manifest = self.json(&self.blob(&self.json("index.json")["manifests"][0]));
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        (self.blob(&manifest["config"]), self.blob(&manifest["layers"][0]))
    }
}

fn the_image_runs_a_command_under_a_lock_as_its_own_user(packages: &Packages) {
    let layout = Layout::of(packages);
    let (config, layer) = layout.config_and_layer();
    let root = CleanRoot::empty();
    let tar = ["--numeric-owner", "--same-permissions", "-C"];
    output(Command::new("tar").args(tar).arg(root.path("")).arg("-xzf").arg(layout.0.path(&layer)));
    let config = &layout.json(&config)["config"];
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let variables = texts(&config["Env"]);
    let variables: Vec<_> = variables.iter().map(|variable| variable.split_once('=').unwrap()).collect();
    let user = config["User"].as_str().unwrap();
    assert_ne!(user, "0:0");
    let command =
        [texts(&config["Entrypoint"]), ["run", "hello", "--", "turnlock", "-V"].map(String::from).to_vec()];
    let version = concat!("turnlock ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(root.run(user, &variables, &command.concat()), version);
    assert!(root.path("home/turnlock/.local/state/turnlock/locks").exists());
    let certificates = fs::read_to_string(root.path("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(certificates.matches("BEGIN CERTIFICATE").count() > 50);
}

fn both_manifests_of_the_image_name_the_same_files(packages: &Packages) {
    let layout = Layout::of(packages);
    let (config, layer) = layout.config_and_layer();
    let manifest = &layout.json("manifest.json")[0];
    assert_eq!(
        (&manifest["Config"], &manifest["Layers"][0]),
        (&Value::from(config.as_str()), &Value::from(layer.as_str()))
    );
    let unpacked =
        output(Command::new("sh").args(["-c", "gzip -dc \"$0\" | sha256sum"]).arg(layout.0.path(&layer)));
    let digest = format!("sha256:{}", unpacked.split_whitespace().next().unwrap());
    assert_eq!(layout.json(&config)["rootfs"]["diff_ids"][0], digest.as_str());
    let name = concat!("turnlock:", env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["RepoTags"][0], name);
}

fn skopeo_reads_the_image_in_both_formats(packages: &Packages) {
    for format in ["oci-archive", "docker-archive"] {
        let image = format!("{format}:{}", packages.image.display());
        let inspected = output(Command::new("skopeo").args(["inspect", "--config", &image]));
        let config: Value = serde_json::from_str(&inspected).unwrap();
        assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/turnlock", "{format}");
    }
}
