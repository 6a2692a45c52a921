//! The home folder.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hpc_chain::keys::{check_private_dir, read_private, write_private};
use serde::{Deserialize, Serialize};

use super::Profile;
use crate::error::{Exit, Failure};

/// A profile is a few lines.
const MAX_FILE: u64 = 64 * 1024;

/// Where profiles and keys are. Nothing is created before it is needed.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    dir: PathBuf,
}

/// Where one profile is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// By name, in the home folder.
    Name(String),
    /// A file of its own.
    File(PathBuf),
}

/// `config.yaml`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    profile: String,
}

impl Home {
    /// `flag`, or the user's configuration folder. `env` reads environment variables.
    pub(crate) fn find(flag: Option<&Path>, env: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let set = |name: &str| env(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // The XDG specification: a relative path there is invalid and to be ignored.
        let config = || set("XDG_CONFIG_HOME").filter(|p| p.is_absolute());
        let dir = match flag {
            Some(dir) => Some(dir.to_owned()),
            None => config()
                .or_else(|| set("HOME").map(|h| h.join(".config")))
                .map(|c| c.join("virtengine")),
        };
        let dir = dir.ok_or_else(|| {
            Failure::usage("setting_missing", "neither --home nor HOME is set").remedy("give --home DIR")
        })?;
        Ok(Self { dir })
    }

    /// The keyring folder that is used unless another is named.
    pub(crate) fn keyring(&self) -> PathBuf {
        self.dir.join("keyring")
    }

    /// Name of the profile in use.
    pub(crate) fn chosen(&self) -> Result<Option<String>, Failure> {
        let path = self.dir.join("config.yaml");
        if !path.exists() {
            return Ok(None);
        }
        let choice: Choice = read_yaml(&path)?;
        check_name(&choice.profile)?;
        Ok(Some(choice.profile))
    }

    /// Chooses the profile that commands use.
    pub(crate) fn choose(&self, name: &str) -> Result<(), Failure> {
        check_name(name)?;
        self.make()?;
        write_yaml(
            &self.dir.join("config.yaml"),
            &Choice {
                profile: name.to_owned(),
            },
        )
    }

    /// Names of all profiles, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>, Failure> {
        let dir = self.dir.join("profiles");
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Failure::file(&dir, &e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| Failure::file(&dir, &e))?.path();
            let stem = path.file_stem().and_then(|s| s.to_str());
            if path.extension().is_some_and(|e| e == "yaml")
                && let Some(name) = stem.filter(|n| check_name(n).is_ok())
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The profile; `None` if there is none at this place.
    pub(crate) fn load(&self, place: &Place) -> Result<Option<Profile>, Failure> {
        let path = self.path(place);
        if path.exists() {
            read_yaml(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Writes the profile and returns its path.
    pub(crate) fn save(&self, place: &Place, profile: &Profile) -> Result<PathBuf, Failure> {
        let path = self.path(place);
        if let Place::Name(_) = place {
            self.make()?;
            check_private_dir(&self.dir.join("profiles"))?;
        }
        write_yaml(&path, profile)?;
        Ok(path)
    }

    /// Path of a profile's file.
    pub(crate) fn path(&self, place: &Place) -> PathBuf {
        match place {
            Place::Name(name) => self.dir.join("profiles").join(format!("{name}.yaml")),
            Place::File(path) => path.clone(),
        }
    }

    fn make(&self) -> Result<(), Failure> {
        if self.dir.exists() {
            Ok(())
        } else {
            Ok(check_private_dir(&self.dir)?)
        }
    }
}

impl Place {
    /// `--profile`: what has a slash or ends in `.yaml` is a file, anything else a name.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        if text.contains('/') || text.ends_with(".yaml") {
            return Ok(Self::File(PathBuf::from(text)));
        }
        check_name(text)?;
        Ok(Self::Name(text.to_owned()))
    }

    /// As it was named.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// Profile names become file names.
fn check_name(name: &str) -> Result<(), Failure> {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if first && rest && name.len() <= 64 {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(
        Failure::usage("bad_profile_name", format!("{shown:?} is no profile name"))
            .remedy("use 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit"),
    )
}

fn read_yaml<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, Failure> {
    let bytes = read_private(path, MAX_FILE)?;
    serde_yaml_ng::from_slice(&bytes).map_err(|e| {
        Failure::new(Exit::Failed, "bad_profile", format!("{}: {e}", path.display()))
            .remedy("correct the file, or make it anew with virtengine deploy")
    })
}

fn write_yaml<T: Serialize>(path: &Path, value: &T) -> Result<(), Failure> {
    let text = serde_yaml_ng::to_string(value).map_err(|e| Failure::file(path, &e))?;
    Ok(write_private(path, text.as_bytes(), true)?)
}

/// The profile, which must exist.
pub(crate) fn existing(home: &Home, place: &Place) -> Result<Profile, Failure> {
    home.load(place)?.ok_or_else(|| {
        let path = home.path(place);
        Failure::new(
            Exit::NotFound,
            "profile_not_found",
            format!("no profile {}", path.display()),
        )
        .remedy("see virtengine profile list, or make one with virtengine deploy")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            chain_id: "hpc-local-1".into(),
            node: "http://127.0.0.1:26657".into(),
            contract: "wasm1contract".into(),
            code_id: 1,
            checksum: None,
            gas_prices: Some("0.025stake".parse().unwrap()),
            prefix: "wasm".into(),
        }
    }

    #[test]
    fn the_home_is_the_flag_then_xdg_then_dot_config() {
        let env = |set: &'static [(&str, &str)]| {
            move |name: &str| {
                set.iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| OsString::from(v))
            }
        };
        let dir = |home: Result<Home, Failure>| home.unwrap().dir.display().to_string();
        assert_eq!(
            dir(Home::find(Some(Path::new("/f")), env(&[("HOME", "/h")]))),
            "/f"
        );
        let both = env(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]);
        assert_eq!(dir(Home::find(None, both)), "/x/virtengine");
        let relative = env(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]);
        assert_eq!(dir(Home::find(None, relative)), "/h/.config/virtengine");
        assert_eq!(Home::find(None, env(&[])).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_profile_comes_back_as_it_was_written_and_can_be_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home {
            dir: folder.path().join("home"),
        };
        assert_eq!(home.chosen().unwrap(), None);
        assert_eq!(home.names().unwrap(), Vec::<String>::new());
        let place = Place::parse("hpc-local-1").unwrap();
        assert_eq!(home.load(&place).unwrap(), None);
        home.save(&place, &profile()).unwrap();
        home.choose("hpc-local-1").unwrap();
        assert_eq!(home.load(&place).unwrap(), Some(profile()));
        assert_eq!(home.names().unwrap(), ["hpc-local-1"]);
        assert_eq!(home.chosen().unwrap().as_deref(), Some("hpc-local-1"));
        let file = Place::parse(&folder.path().join("p.yaml").display().to_string()).unwrap();
        home.save(&file, &profile()).unwrap();
        assert_eq!(home.load(&file).unwrap(), Some(profile()));
    }

    #[test]
    fn a_profile_name_cannot_leave_the_folder() {
        for bad in ["", "..", ".hidden", "a b", &"x".repeat(65)] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Place::parse("../up").unwrap(), Place::File("../up".into()));
    }

    #[test]
    fn a_damaged_profile_is_named_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        write_private(&path, b"chain_id: x\nnonsense: 1\n", true).unwrap();
        let home = Home {
            dir: folder.path().to_owned(),
        };
        let failure = home.load(&Place::File(path)).unwrap_err();
        assert_eq!(failure.code, "bad_profile");
        assert!(failure.message.contains("p.yaml"), "{}", failure.message);
    }
}
