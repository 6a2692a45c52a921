use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

/// A tree with a program to install.
fn image() -> (tempfile::TempDir, Place, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let place = Place::new(Some(&root));
    (dir, place, program)
}

fn take(place: &Place, steps: &[Step]) -> Vec<String> {
    steps.iter().filter_map(|s| s.take(place).unwrap()).collect()
}

/// Every path of the tree, with its mode.
fn tree(place: &Place) -> BTreeMap<String, u32> {
    fn walk(root: &Path, folder: &Path, into: &mut BTreeMap<String, u32>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, meta) = (entry.path(), entry.path().symlink_metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().display().to_string();
            into.insert(name, meta.permissions().mode() & 0o7777);
            if meta.is_dir() {
                walk(root, &path, into);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(&place.root, &place.root, &mut all);
    all
}

#[test]
fn an_image_gets_every_directory_of_the_specification_and_a_second_time_changes_nothing() {
    let (_dir, place, program) = image();
    let steps = install(&place, &program);
    assert!(!take(&place, &steps).is_empty());
    let made = tree(&place);
    for (path, mode) in [
        ("usr/local/bin/virtengine-node-agent", 0o755),
        ("etc/virtengine/node-agent", 0o750),
        ("etc/virtengine/node-agent/keys", 0o700),
        ("etc/virtengine/node-agent/config.yaml", 0o640),
        ("etc/virtengine/node-agent/environment", 0o600),
        ("var/lib/virtengine/node-agent", 0o700),
        ("var/log/virtengine", 0o750),
        ("etc/systemd/system/virtengine-node-agent.service", 0o644),
        ("etc/systemd/system/virtengine-node-tasks.service", 0o644),
        ("etc/systemd/system/virtengine-node-helper.socket", 0o644),
        ("etc/systemd/system/virtengine-node-helper@.service", 0o644),
        ("etc/udev/rules.d/60-virtengine-node-agent.rules", 0o644),
    ] {
        assert_eq!(made.get(path), Some(&mode), "{path} in {made:#?}");
    }
    let config = place.at("/etc/virtengine/node-agent/config.yaml");
    fs::write(&config, "edited: true\n").unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(take(&place, &steps), Vec::<String>::new());
    assert_eq!(fs::read_to_string(&config).unwrap(), "edited: true\n");
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    // Another version takes the place of the program and of the units.
    fs::write(&program, "#!/bin/sh\n# next\n").unwrap();
    assert_eq!(take(&place, &steps).len(), 1);
}

#[test]
fn uninstalling_leaves_what_the_node_is_and_purging_leaves_nothing() {
    let (_dir, place, program) = image();
    take(&place, &install(&place, &program));
    let key = place.at("/etc/virtengine/node-agent/keys/agent.key");
    fs::write(&key, "secret").unwrap();
    fs::write(place.at("/var/log/virtengine/node-agent.log.1"), "old").unwrap();
    fs::write(place.at("/etc/virtengine/tasks.yaml"), "mode: slice").unwrap();
    fs::create_dir_all(place.at("/var/lib/virtengine/tasks/journal")).unwrap();
    take(&place, &uninstall(&place, false));
    assert!(key.exists() && !place.at("/usr/local/bin/virtengine-node-agent").exists());
    assert!(!tree(&place).keys().any(|p| p.contains("virtengine-node")));
    take(&place, &uninstall(&place, true));
    let left: Vec<String> = tree(&place)
        .into_keys()
        .filter(|p| p.contains("virtengine"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Nothing there any more: nothing to do, and no error.
    assert_eq!(take(&place, &uninstall(&place, true)), Vec::<String>::new());
}

#[test]
fn what_tasks_hold_and_other_programs_have_outlives_a_purge_and_is_named() {
    let (_dir, place, program) = image();
    take(&place, &install(&place, &program));
    let tasks = place.at("/var/lib/virtengine/tasks");
    fs::create_dir_all(&tasks).unwrap();
    let held = r#"{"holdings":[{"kind":"vm","name":"m-1","task_id":"t","since":1,"facts":{}}]}"#;
    fs::write(tasks.join("holdings.json"), held).unwrap();
    fs::create_dir_all(place.at("/etc/virtengine/provider")).unwrap();
    let said = take(&place, &uninstall(&place, true)).join("\n");
    assert!(said.contains("tasks hold vm m-1 here"), "{said}");
    assert!(tasks.join("holdings.json").exists() && place.at("/etc/virtengine/provider").exists());
    assert_eq!(place.held_by_tasks(), ["vm m-1"]);
    fs::write(tasks.join("holdings.json"), r#"{"holdings":[]}"#).unwrap();
    take(&place, &uninstall(&place, true));
    assert!(!tasks.exists());
    // What cannot be read may hold something.
    fs::create_dir_all(&tasks).unwrap();
    fs::write(tasks.join("holdings.json"), "damaged").unwrap();
    assert!(
        take(&place, &uninstall(&place, true))
            .join("\n")
            .contains("stays")
    );
}

#[test]
fn uninstalling_takes_back_what_udevs_rule_gave_and_nothing_else() {
    let here = Place::new(None);
    if here.os == Os::Linux {
        let steps = uninstall(&here, true);
        let at = |is: fn(&Step) -> bool| steps.iter().position(is).unwrap();
        let back = at(|s| *s == Step::UdevBack);
        let rule = at(|s| matches!(s, Step::Remove(path) if path.starts_with("/etc/udev")));
        assert!(rule < back && back < at(|s| matches!(s, Step::RemoveUser { .. })));
        assert!(unsettle(&here).contains(&Step::UdevBack));
    }

    let (_dir, place, _) = image();
    let meta = fs::metadata(place.at("/")).unwrap();
    let root = rustix::process::geteuid().is_root();
    let gid = if root { 4711 } else { meta.gid() };
    fs::create_dir_all(place.at("/etc")).unwrap();
    fs::write(
        place.at("/etc/passwd"),
        format!("{USER}:x:{}:{gid}::/:/bin/false\n", meta.uid()),
    )
    .unwrap();
    let counter = |zone: &str, mode: u32, group: Option<u32>| {
        let path = place.at(&format!("/sys/class/powercap/{zone}/energy_uj"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "1\n").unwrap();
        std::os::unix::fs::chown(&path, None, group).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let state = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (meta.permissions().mode() & 0o777, meta.gid())
    };
    let given = counter("intel-rapl:0", 0o440, Some(gid));
    let by_root = counter("intel-rapl:1", 0o400, None);
    let before = state(&by_root);
    let said = Step::UdevBack.take(&place).unwrap().unwrap();
    assert_eq!(state(&given).0, 0o400);
    if root {
        assert_eq!((state(&given).1, state(&by_root)), (0, before));
        assert_eq!(said, "the counters of energy are root's alone again");
        // Nothing more to take back.
        assert_eq!(Step::UdevBack.take(&place).unwrap(), None);
    }
}

#[test]
fn a_link_in_a_directory_of_the_services_user_is_not_followed() {
    let (dir, place, program) = image();
    take(&place, &install(&place, &program));
    let (keys, config) = (
        place.at("/etc/virtengine/node-agent/keys"),
        place.at("/etc/virtengine/node-agent/config.yaml"),
    );
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("shadow"), "x").unwrap();
    fs::remove_dir(&keys).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &keys).unwrap();
    let fails = |steps: &[Step]| steps.iter().any(|s| s.take(&place).is_err());
    assert!(fails(&settle(&place)));
    fs::remove_file(&keys).unwrap();
    fs::remove_file(&config).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("shadow"), &config).unwrap();
    assert!(fails(&settle(&place)));
    fs::remove_file(&config).unwrap();
    fs::hard_link(elsewhere.join("shadow"), &config).unwrap();
    assert!(fails(&settle(&place)));
    fs::remove_file(&config).unwrap();
    assert!(!fails(&settle(&place)));
}

#[test]
fn an_image_is_only_written_to_and_this_host_is_told_last() {
    let program = Path::new("/p");
    let image = Place::new(Some(Path::new("/image")));
    for step in install(&image, program).iter().chain(&uninstall(&image, true)) {
        let alive = matches!(
            step,
            Step::User
                | Step::Group(_)
                | Step::SlurmOperator
                | Step::Udev
                | Step::UdevBack
                | Step::Systemctl(_)
                | Step::Disable(_)
                | Step::RcStop
                | Step::RemoveUser { .. }
        );
        assert!(!alive, "{step}");
        assert!(step.to_string().contains("/image/"), "{step}");
    }
    let here = Place::new(None);
    let steps = install(&here, program);
    assert_eq!(steps[0], Step::User);
    // The program comes after the directories and before the service manager.
    let at = |is: fn(&Step) -> bool| steps.iter().position(is);
    let (put, told) = (
        at(|s| matches!(s, Step::Program { .. })).unwrap(),
        at(|s| matches!(s, Step::Systemctl(_))).unwrap_or(usize::MAX),
    );
    assert!(put < told && at(|s| matches!(s, Step::Keep { .. })) < at(|s| matches!(s, Step::Own { .. })));
}

#[test]
fn the_packages_have_every_unit_and_rule_and_their_scripts_call_this_program() {
    let read = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/package");
        fs::read_to_string(folder.join(name)).unwrap()
    };
    let contents = read("nfpm.yaml");
    for (path, _, _) in files::services(Os::Linux) {
        // `/systemd/system/…`, `/udev/rules.d/…`: of the .deb and of the .rpm.
        let inside = path.strip_prefix("/etc").unwrap();
        assert_eq!(contents.matches(inside).count(), 2, "{inside}");
    }
    assert!(read("postinstall.sh").contains("virtengine-node-agent install --packaged"));
    assert!(read("preremove.sh").contains("virtengine-node-agent uninstall --packaged"));
}

/// What of rc.subr(8) the script uses: rc.conf, the precommand, the program with its arguments, signals by the pid file.
const RC_SUBR: &str = r#"
load_rc_config() { . "DIR/rc.conf"; }
run_rc_command() {
    eval "enabled=\$$rcvar pre=\$start_precmd more=\$reload_cmd"
    case $1 in
    start)
        if [ "$enabled" != YES ]; then echo "$rcvar is not set"; exit 0; fi
        if [ -s "$pidfile" ] && kill -0 "$(cat "$pidfile")" 2>/dev/null; then exit 1; fi
        $pre
        $command $command_args
        ;;
    stop) kill -TERM "$(cat "$pidfile")" ;;
    reload) $more ;;
    status) kill -0 "$(cat "$pidfile")" ;;
    *) exit 2 ;;
    esac
}
"#;

/// daemon(8) with the options that FreeBSD and DragonFlyBSD have in common: pid file, restart, user, SIGTERM passed on.
const DAEMON: &str = r#"#!/bin/sh
while getopts P:rR:ST:u: option; do
    case $option in
    P) pidfile=$OPTARG ;;
    r) restart=yes ;;
    R) pause=$OPTARG ;;
    S) syslog=yes ;;
    T) tag=$OPTARG ;;
    u) user=$OPTARG ;;
    *) exit 64 ;;
    esac
done
shift $((OPTIND - 1))
echo "$user $tag $restart $pause $syslog" >"DIR/options"
(
    end() { kill -TERM "$child"; wait "$child"; rm "$pidfile"; exit; }
    trap end TERM
    while :; do
        "$@" &
        child=$!
        wait "$child"
        [ "$restart" = yes ] || break
    done
) >/dev/null 2>&1 </dev/null &
echo $! >"$pidfile"
"#;

/// What a service that was taken over would have root run.
const ENVIRONMENT_OF_A_THIEF: &str = "# of the runbook
touch DIR/stolen
NODE_AGENT_OS_FAMILY=$(touch DIR/stolen)`touch DIR/stolen`; touch DIR/stolen
NODE_AGENT_X$(touch DIR/stolen)=y
LD_PRELOAD=DIR/stolen.so
PATH=DIR
NODE_AGENT_HOST_ID=\"node-0007\"
";

/// Says how it was started, and that it was told to read its configuration again.
const AGENT: &str = r#"#!/bin/sh
trap 'echo reload >>"DIR/said"' HUP
trap 'echo end >>"DIR/said"; exit 0' TERM
echo "$* as ${NODE_AGENT_HOST_ID:-nobody}" >>"DIR/said"
while :; do sleep 0.05; done
"#;

#[test]
fn the_rc_script_starts_restarts_reloads_and_stops_the_agent_under_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let root = dir.path().to_str().unwrap();
    let script = files::services(Os::Bsd)
        .iter()
        .find(|(path, _, _)| path.ends_with("rc.d/virtengine_node_agent"));
    let (_, script, mode) = script.unwrap();
    assert_eq!(*mode, 0o755);
    let here = script
        .replace("/etc/rc.subr", &format!("{root}/rc.subr"))
        .replace("/usr/sbin/daemon", &format!("{root}/daemon"))
        .replace("/var/run/", &format!("{root}/"))
        .replace("/usr/local/bin/virtengine-node-agent", &format!("{root}/agent"));
    for (name, text) in [
        ("script", here.as_str()),
        ("rc.subr", RC_SUBR),
        ("daemon", DAEMON),
        ("agent", AGENT),
        ("environment", ENVIRONMENT_OF_A_THIEF),
        ("rc.conf", ""),
    ] {
        crate::stand_in::stand_in(&at(name), &text.replace("DIR", root));
    }
    let rc = |verb: &str| {
        // A shell cannot trap what was ignored when it began: by nohup, say.
        let out = std::process::Command::new("env")
            .args(["--default-signal=HUP", "sh"])
            .arg(at("script"))
            .arg(verb)
            .output()
            .unwrap();
        (
            out.status.success(),
            String::from_utf8_lossy(&out.stdout).into_owned(),
        )
    };
    let until = |what: &str, good: &dyn Fn(&str) -> bool| {
        let start = std::time::Instant::now();
        while !fs::read_to_string(at("said")).is_ok_and(|said| good(&said)) {
            assert!(
                start.elapsed().as_secs() < 20,
                "{what}: {:?}",
                fs::read_to_string(at("said"))
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    // Nothing is started that was not enabled.
    assert!(rc("start").1.contains("virtengine_node_agent_enable is not set") && !at("said").exists());
    let conf = format!(
        "virtengine_node_agent_enable=YES\nvirtengine_node_agent_config={root}/config.yaml\nvirtengine_node_agent_environment={root}/environment\n"
    );
    fs::write(at("rc.conf"), conf).unwrap();
    assert!(rc("start").0 && rc("status").0);
    assert!(!at("stolen").exists(), "root ran what the service wrote");
    let started = format!("run --config {root}/config.yaml as node-0007\n");
    until("the start", &|said| said == started);
    assert_eq!(
        fs::read_to_string(at("options")).unwrap(),
        "virtengine virtengine-node-agent yes 10 yes\n"
    );
    assert!(!rc("start").0, "a second one");
    assert!(rc("reload").0);
    until("the reload", &|said| said.contains("reload\n"));
    // Killed, it is started again with the same words.
    let pid = fs::read_to_string(at("virtengine_node_agent.pid")).unwrap();
    let mut kill = std::process::Command::new("pkill");
    assert!(kill.args(["-KILL", "-P", pid.trim()]).status().unwrap().success());
    until("the restart", &|said| said.matches(&started).count() == 2);
    assert!(rc("stop").0);
    until("the end", &|said| said.ends_with("end\n"));
}
