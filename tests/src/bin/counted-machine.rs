//! Stands for QEMU, `qemu-img` and the ISO writer where a test counts how often machines are started: by the name that
//! it is called by. Each start of a machine is told to the socket `../count/socket` beside its folder, before anything
//! else, and whether it is in its control group by then; it then answers its monitor as QEMU does, until it is told to shut down or killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let mut words = std::env::args();
    let program = PathBuf::from(words.next().context("no name")?);
    let words: Vec<String> = words.collect();
    let name = program.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let probed = after(&words, "-append");
    if probed.is_some() || !name.starts_with("qemu-system") {
        // The agent's, which may have put a bound on its time in between.
        let parent = std::os::unix::process::parent_id();
        let groups = [parent, parent_of(parent)?].map(|pid| format!("{pid}-"));
        let ours = |n: &str| groups.iter().any(|g| n.starts_with(g));
        anyhow::ensure!(is_inside("virtengine-programs", &ours)?, "outside its group");
    }
    if !name.starts_with("qemu-system") {
        // The file to write is the one that has no name yet.
        let made = words
            .iter()
            .find(|w| w.contains("/.ve-"))
            .context("nothing to write")?;
        return Ok(std::fs::write(made, name)?);
    }
    if let Some(append) = probed {
        // The probe of accelerators: a kernel that comes through.
        println!("Kernel command line: {append}\nVFS: Unable to mount root fs on unknown-block(0,0)");
        return Ok(());
    }
    let machine = after(&words, "-name").and_then(|n| n.strip_prefix("guest=virtengine-")?.split(',').next());
    let machine = machine.context("-name")?;
    let group = format!("-{machine}");
    let inside = is_inside("virtengine-machines", &|n| n.ends_with(&group))?;
    count(&program, machine, inside)?;
    let uuid = after(&words, "-uuid").context("-uuid")?.to_owned();
    let (over, told) = std::sync::mpsc::channel();
    for word in &words {
        let Some(path) = word.strip_prefix("socket,").and_then(|w| w.split_once("path=")) else {
            continue;
        };
        let path = path.1.split(',').next().unwrap_or_default();
        let listener = UnixListener::bind(path).with_context(|| path.to_owned())?;
        let (uuid, over) = (uuid.clone(), over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (uuid, over) = (uuid.clone(), over.clone());
                std::thread::spawn(move || serve(stream, &uuid, &over).ok());
            }
        });
    }
    Ok(told.recv()?)
}

fn parent_of(pid: u32) -> Result<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(") ").context("no stat")?;
    Ok(rest.split(' ').nth(1).context("no parent")?.parse()?)
}

fn after<'a>(words: &'a [String], flag: &str) -> Option<&'a str> {
    let at = words.iter().position(|w| w == flag)?;
    words.get(at.checked_add(1)?).map(String::as_str)
}

/// Whether this process is in its control group already, or there is none of its own because the host has none.
fn is_inside(parent: &str, ours: &dyn Fn(&str) -> bool) -> Result<bool> {
    let has = ["", "memory", "cpu", "pids"].iter().any(|hierarchy| {
        let folder = Path::new("/sys/fs/cgroup").join(hierarchy).join(parent);
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names
            .into_iter()
            .any(|e| e.file_name().to_str().is_some_and(ours))
    });
    let mine = std::fs::read_to_string("/proc/self/cgroup")?;
    Ok(!has || mine.lines().any(|l| l.contains(&format!("/{parent}/"))))
}

fn count(program: &Path, machine: &str, inside: bool) -> Result<()> {
    let folder = program.parent().and_then(Path::parent).context("no folder")?;
    let mut counter = UnixStream::connect(folder.join("count/socket"))?;
    writeln!(counter, "{machine} {} {inside}", std::process::id())?;
    let mut heard = String::new();
    BufReader::new(counter).read_line(&mut heard)?;
    anyhow::ensure!(heard == "counted\n", "nobody counts");
    Ok(())
}

fn serve(mut stream: UnixStream, uuid: &str, over: &Sender<()>) -> Result<()> {
    writeln!(stream, "{}", json!({"QMP": {"version": {}, "capabilities": []}}))?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let command = asked.get("execute").and_then(Value::as_str);
        let answer = match command {
            Some("query-uuid") => json!({"UUID": uuid}),
            _ => json!({}),
        };
        writeln!(stream, "{}", json!({ "return": answer }))?;
        if command == Some("system_powerdown") {
            over.send(())?;
        }
    }
    Ok(())
}
