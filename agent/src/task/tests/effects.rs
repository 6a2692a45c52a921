use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::super::effect::process::find_marked;
use super::super::effect::{
    Directory, Effect, EffectError, File, Mark, Process, Produced, Scene, Seen, Trace,
};
use super::super::{Host, Stop};
use super::bench::{host, path, until};

struct Stage {
    host: Host,
    mark: Mark,
    stop: Stop,
}

impl Stage {
    fn new(dir: &Path) -> Self {
        Self {
            host: host(dir),
            mark: Mark {
                task_id: "task-1".parse().unwrap(),
                step: 0,
            },
            stop: Stop::after(Duration::from_secs(60)),
        }
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            host: &self.host,
            mark: &self.mark,
            stop: &self.stop,
        }
    }

    fn apply(&self, effect: &Effect) -> (Result<(), EffectError>, Option<Trace>) {
        let mut noted = None;
        let done = effect.act().apply(self.scene(), &mut |t| {
            noted = Some(t);
            Ok(())
        });
        (done, noted)
    }

    fn undo(&self, effect: &Effect, trace: Option<&Trace>) -> Result<(), EffectError> {
        effect.act().undo(self.scene(), trace)
    }

    fn seen(&self, effect: &Effect, trace: Option<&Trace>) -> Seen {
        effect.act().observe(self.scene(), trace).unwrap()
    }
}

fn effects(dir: &Path) -> Vec<Effect> {
    vec![
        Effect::File(File::new(path(dir.join("thing")), 0o640, b"x".to_vec())),
        Effect::Directory(Directory {
            path: path(dir.join("thing")),
            mode: 0o750,
        }),
        Effect::Produced(Produced {
            path: path(dir.join("thing")),
            mode: 0o600,
            program: "/usr/bin/touch".parse().unwrap(),
            arguments: vec!["{}".into()],
            limit_seconds: 10,
        }),
    ]
}

#[test]
fn what_is_made_is_found_and_taken_away_and_a_second_time_is_good_too() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(dir.path());
    for effect in effects(dir.path()) {
        assert_eq!(stage.seen(&effect, None), Seen::Absent);
        let (done, trace) = stage.apply(&effect);
        done.unwrap();
        assert_eq!(stage.seen(&effect, trace.as_ref()), Seen::Ours);
        for _ in 0..2 {
            stage.undo(&effect, trace.as_ref()).unwrap();
            assert_eq!(stage.seen(&effect, trace.as_ref()), Seen::Absent);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn what_was_there_is_neither_replaced_nor_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(dir.path());
    for effect in effects(dir.path()) {
        fs::write(dir.path().join("thing"), "the site's").unwrap();
        let (done, trace) = stage.apply(&effect);
        assert!(matches!(done, Err(EffectError::Busy(_))), "{done:?}");
        stage.undo(&effect, trace.as_ref()).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("thing")).unwrap(),
            "the site's"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::remove_file(dir.path().join("thing")).unwrap();
    }
}

#[test]
fn what_took_the_place_of_ours_stays() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(dir.path());
    for effect in effects(dir.path()) {
        let (done, trace) = stage.apply(&effect);
        done.unwrap();
        fs::rename(dir.path().join("thing"), dir.path().join("moved")).unwrap();
        fs::write(dir.path().join("thing"), "another's").unwrap();
        stage.undo(&effect, trace.as_ref()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("thing")).unwrap(), "another's");
        fs::remove_file(dir.path().join("thing")).unwrap();
        if dir.path().join("moved").is_dir() {
            fs::remove_dir(dir.path().join("moved")).unwrap();
        } else {
            fs::remove_file(dir.path().join("moved")).unwrap();
        }
    }
}

#[test]
fn no_link_on_the_way_is_followed_neither_making_nor_taking_away() {
    let dir = tempfile::tempdir().unwrap();
    let (real, outside) = (dir.path().join("real"), dir.path().join("outside"));
    fs::create_dir(&real).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    symlink(&outside, dir.path().join("link")).unwrap();
    let stage = Stage::new(dir.path());
    let through = Effect::File(File::new(
        path(dir.path().join("link/thing")),
        0o600,
        b"x".to_vec(),
    ));
    assert!(stage.apply(&through).0.is_err());
    // Nothing of ours can lie behind a link.
    stage.undo(&through, None).unwrap();
    assert!(outside.join("precious").exists());
    // A folder of ours in which somebody has put links: they go, what they lead to stays.
    let folder = Effect::Directory(Directory {
        path: path(real.join("d")),
        mode: 0o700,
    });
    let (done, trace) = stage.apply(&folder);
    done.unwrap();
    symlink(&outside, real.join("d/link")).unwrap();
    fs::create_dir(real.join("d/sub")).unwrap();
    symlink(outside.join("precious"), real.join("d/sub/link")).unwrap();
    // Swapped for a link as a whole, it is not ours any more.
    stage.undo(&folder, trace.as_ref()).unwrap();
    assert!(!real.join("d").exists() && outside.join("precious").exists());
    let (done, trace) = stage.apply(&folder);
    done.unwrap();
    fs::remove_dir(real.join("d")).unwrap();
    symlink(&outside, real.join("d")).unwrap();
    stage.undo(&folder, trace.as_ref()).unwrap();
    assert!(real.join("d").exists() && outside.join("precious").exists());
}

#[test]
fn a_tree_is_taken_away_however_deep_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::new(dir.path());
    let folder = Effect::Directory(Directory {
        path: path(dir.path().join("d")),
        mode: 0o700,
    });
    let (done, trace) = stage.apply(&folder);
    done.unwrap();
    // A name that the way back would choose, too; and 900 folders below, 4 at each level aside.
    fs::create_dir(dir.path().join("d/.ve-deep-1")).unwrap();
    let mut at = dir.path().join("d");
    for level in 0..900 {
        at.push("x");
        fs::create_dir(&at).unwrap();
        if level % 60 == 59 {
            (0..4).for_each(|n| fs::write(at.join(format!("f{n}")), "x").unwrap());
        }
    }
    stage.undo(&folder, trace.as_ref()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

const MOUNTS: &str = "HPC_TEST_MOUNTS";

/// Not a test by itself: runs where the test below has mounted one folder into another.
#[test]
fn child_among_mounts() {
    let Some(dir) = std::env::var_os(MOUNTS).map(std::path::PathBuf::from) else {
        return;
    };
    let stage = Stage::new(&dir);
    let folder = Effect::Directory(Directory {
        path: path(dir.join("d")),
        mode: 0o700,
    });
    let (done, trace) = stage.apply(&folder);
    done.unwrap();
    let inner = dir.join("d/sub/mounted");
    fs::create_dir_all(&inner).unwrap();
    let mount = |program: &str, arguments: &[&Path]| {
        let done = std::process::Command::new(program)
            .args(arguments)
            .status()
            .unwrap();
        assert!(done.success(), "{program}");
    };
    mount("mount", &[Path::new("--bind"), &dir.join("precious"), &inner]);
    let e = stage.undo(&folder, trace.as_ref()).unwrap_err();
    assert!(e.to_string().contains("holds a mount; unmount it"), "{e}");
    assert!(dir.join("precious/thing").exists());
    mount("umount", &[&inner]);
    stage.undo(&folder, trace.as_ref()).unwrap();
    assert!(!dir.join("d").exists() && dir.join("precious/thing").exists());
}

#[test]
fn a_folder_that_is_bound_into_ours_is_another_s_on_the_same_file_system_too() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("precious")).unwrap();
    fs::write(dir.path().join("precious/thing"), "x").unwrap();
    // A name space of its own, as root or with a user name space.
    let ended = std::process::Command::new("unshare")
        .args(["--mount", "--map-root-user", "--"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "task::tests::effects::child_among_mounts",
            "--test-threads=1",
        ])
        .env(MOUNTS, dir.path())
        .output()
        .unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stdout)
    );
    assert!(dir.path().join("precious/thing").exists());
}

#[test]
fn the_mark_of_another_user_s_process_is_none() {
    use std::os::unix::process::CommandExt as _;
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(dir.path());
    stage.mark.task_id = format!("forged-{}", std::process::id()).parse().unwrap();
    let start = |uid: Option<u32>| {
        let mut command = std::process::Command::new("/bin/sleep");
        command
            .arg("300")
            .env("VIRTENGINE_TASK", stage.mark.to_string())
            .env("VIRTENGINE_TASKS", stage.host.dir.instance());
        if let Some(uid) = uid {
            command.uid(uid);
        }
        command.spawn().unwrap()
    };
    let root = rustix::process::geteuid().is_root();
    // Another task domain on this host has a task of the same name.
    let mut theirs = std::process::Command::new("/bin/sleep")
        .arg("300")
        .env("VIRTENGINE_TASK", stage.mark.to_string())
        .env("VIRTENGINE_TASKS", "another")
        .spawn()
        .unwrap();
    let mut all = vec![start(None)];
    // Only root can be somebody else.
    if root {
        all.push(start(Some(65_533)));
    }
    let mut ours = Vec::new();
    until("a process is marked", || {
        let found = find_marked(&stage.host, &stage.mark).unwrap();
        ours = found.into_iter().map(|(pid, _)| pid).collect();
        !ours.is_empty()
    });
    assert_eq!(ours, [all[0].id()]);
    if root {
        let both = super::super::effect::process::find_marked_of(&stage.host, &stage.mark, Some(65_533));
        assert_eq!(both.unwrap().len(), 2);
    }
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    for mut child in all {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn sleeper() -> Process {
    Process {
        program: "/bin/sleep".parse().unwrap(),
        arguments: vec!["300".into()],
        environment: BTreeMap::new(),
        log: None,
        grace_seconds: 5,
    }
}

#[test]
fn a_process_is_found_by_its_mark_before_its_number_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::new(dir.path());
    stage.mark.task_id = format!("mark-{}", std::process::id()).parse().unwrap();
    let effect = Effect::Process(sleeper());
    let (done, trace) = stage.apply(&effect);
    done.unwrap();
    let Some(Trace::Process { pid, start }) = trace else {
        panic!()
    };
    // The child is marked once it runs its program.
    until("the child is marked", || {
        !find_marked(&stage.host, &stage.mark).unwrap().is_empty()
    });
    assert_eq!(find_marked(&stage.host, &stage.mark).unwrap(), [(pid, start)]);
    assert_eq!(stage.seen(&effect, None), Seen::Ours);
    stage.undo(&effect, None).unwrap();
    assert_eq!(stage.seen(&effect, trace.as_ref()), Seen::Absent);
    // The number of another process is not the process.
    let other = Trace::Process {
        pid: std::process::id(),
        start: 1,
    };
    stage.undo(&effect, Some(&other)).unwrap();
}
