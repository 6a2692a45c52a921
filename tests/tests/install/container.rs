//! The recipe of an image, carried out without a registry: its base is the same clean Debian under the name that the
//! recipe gives it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use hpc_tests::scene::{self, Scene};
use hpc_tests::{process, program};

use super::package;
use super::root::Root;

/// Buildah on a store of the test's own.
struct Buildah {
    store: PathBuf,
    policy: PathBuf,
}

impl Buildah {
    fn new(scene: &Scene) -> Result<Self> {
        let policy = scene.path("policy.json");
        fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)?;
        Ok(Self {
            store: scene.folder("store")?,
            policy,
        })
    }

    fn run(&self, verb: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new("buildah");
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(self.store.join("root"))
            .arg("--runroot")
            .arg(self.store.join("run"))
            .arg(verb);
        if ["commit", "bud"].contains(&verb) {
            command.arg("--signature-policy").arg(&self.policy);
        }
        let said = process::output(command.args(words)).context("Remedy: apt-get install buildah")?;
        Ok(said.trim().to_owned())
    }
}

#[test]
fn the_container_recipe_makes_an_image_that_runs_the_agent_without_rights() -> Result<()> {
    scene::run("install-container", |scene, _| {
        let recipe = program::root().join("deploy/container/Containerfile");
        let text = fs::read_to_string(&recipe)?;
        let base = text
            .lines()
            .find_map(|l| l.strip_prefix("FROM "))
            .context("no FROM")?;
        let agent = package("virtengine-node-agent-linux-amd64")?;
        // The recipe wants what it copies at its place below the context.
        let context = scene.folder("context")?;
        let place = context.join("target/package");
        fs::create_dir_all(&place)?;
        fs::copy(&agent, place.join("virtengine-node-agent-linux-amd64"))?;

        let buildah = Buildah::new(scene)?;
        let debian = Root::make(scene.path("debian"), scene.log("agent"))?;
        // A container's devices are its runtime's.
        fs::remove_dir_all(debian.path("/dev"))?;
        fs::create_dir(debian.path("/dev"))?;
        let container = buildah.run("from", &["scratch"])?;
        let tree = debian.path("/").display().to_string();
        buildah.run("copy", &["--quiet", &container, &tree, "/"])?;
        buildah.run("commit", &["--quiet", &container, base])?;
        let (recipe, context) = (recipe.display().to_string(), context.display().to_string());
        let words = [
            "--isolation",
            "chroot",
            "--pull-never",
            "--file",
            &recipe,
            "--tag",
            "agent",
            &context,
        ];
        buildah.run("bud", &words)?;

        let format = "{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}";
        let said = buildah.run(
            "inspect",
            &["--type", "image", "--format", format, "localhost/agent"],
        )?;
        ensure!(
            said == "978:978 [/usr/local/bin/virtengine-node-agent] [run --config /etc/virtengine/node-agent/config.yaml]",
            "{said}"
        );
        let container = buildah.run("from", &["--pull-never", "localhost/agent"])?;
        let inside = |words: &[&str]| {
            let program = [
                "--isolation",
                "chroot",
                &container,
                "--",
                "/usr/local/bin/virtengine-node-agent",
            ];
            buildah.run("run", &[&program, words].concat())
        };
        let version = inside(&["--version"])?;
        ensure!(version.starts_with("virtengine-node-agent "), "{version}");
        let figures = inside(&["inventory", "-o", "json"])?;
        ensure!(figures.contains("cpu_cores_total"), "{figures}");
        Ok(())
    })
}
