//! Replays and races with links, drawn on top of those that are written by hand: the same ones at each run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hpc_schema::code::Code;
use hpc_schema::task::{Delivered, Task, TaskOutcome, TaskResult};

use super::super::domain::{Input, Output};
use super::bench::*;
use super::races::{fifo, is_untouched, outside};

/// Tasks that come again, each in a way of its own.
pub(super) const REPLAYS: usize = 48;
/// What lies where a task makes something.
pub(super) const LAID: usize = 32;
/// What is done to a task's things while it runs.
pub(super) const DONE: usize = 16;
/// Tasks whose things are swapped all the time.
pub(super) const SWAPPED: usize = 16;

/// xorshift: the same tasks at each run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n).unwrap()).unwrap()
    }

    pub(super) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    pub(super) fn word(&mut self) -> String {
        (0..=self.below(6))
            .map(|_| char::from(b'a' + u8::try_from(self.below(26)).unwrap()))
            .collect()
    }
}

/// Tasks that have ended, in every way that there is.
fn ended(node: &Node) -> Vec<(Task, TaskResult)> {
    let site = &node.site;
    let done = launch(site, "done", "vm-1");
    let mut all = vec![(done.clone(), node.run(&done))];
    for task in [
        terminate(site, "gone", "vm-1"),
        launch(site, "failed", "fails-1"),
        launch(site, "broken", "breaks-1"),
        site.task("unknown", "exec.shell", "{}"),
        site.task("probe", "diag.health_probe", "{}"),
    ] {
        let result = node.run(&task);
        all.push((task, result));
    }
    let taken_back = launch(site, "taken-back", "vm-2");
    let word = Input::Cancel(site.cancellation(&taken_back));
    assert!(node.domain.tell(word));
    let result = node.result(&taken_back);
    all.push((taken_back, result));
    all
}

/// What the node says of a task that has ended: nothing of a phase.
fn answered(node: &Node, task: &Task) -> TaskResult {
    node.wait_for("an answer to a replayed task", |said| match said {
        Output::Result { task_id, result } if task_id == task.task_id => Some(*result),
        Output::Result { .. } => None,
        Output::Progress { task_id, progress } => panic!("{task_id} began again: {}", progress.phase),
    })
}

#[test]
fn whatever_happens_before_a_task_comes_again_it_is_answered_as_it_was_and_never_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::start(dir.path());
    let all = ended(&node);
    assert!(left(&node.host).is_empty());
    let journals = |node: &Node| fs::read_dir(node.host.dir.journal()).unwrap().count();
    let before = journals(&node);
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for number in 0..REPLAYS {
        let (task, first) = &all[dice.below(all.len())];
        let mut way = Vec::new();
        for _ in 0..dice.below(4) {
            let (other, said) = &all[dice.below(all.len())];
            let word = match dice.below(6) {
                0 => Input::Hello,
                1 => Input::Heard {
                    task_id: other.task_id.clone(),
                },
                2 => Input::Cancel(node.site.cancellation(other)),
                3 => Input::Keys { steps: Vec::new() },
                4 => {
                    node.domain.stop();
                    node = Node::with(node.host, node.site);
                    way.push("restart".to_owned());
                    continue;
                }
                _ => {
                    node.deliver(other);
                    assert_eq!(
                        answered(&node, other).signature,
                        said.signature,
                        "{number} {way:?}"
                    );
                    way.push(format!("{} again", other.task_id));
                    continue;
                }
            };
            way.push(format!("{word:?}"));
            assert!(node.domain.tell(word));
        }
        for _ in 0..=dice.below(3) {
            let again = Delivered {
                task: task.clone(),
                lease_seconds: u32::try_from(dice.below(4000)).unwrap(),
                attempt: u32::try_from(dice.below(9)).unwrap(),
            };
            assert!(node.domain.tell(Input::Deliver(Box::new(again))));
            let said = answered(&node, task);
            assert_eq!(
                said.signature, first.signature,
                "{number} {way:?}: {:?}",
                said.detail
            );
        }
        assert!(left(&node.host).is_empty(), "{number} {way:?}");
    }
    assert_eq!(journals(&node), before, "a replay left a journal");
}

/// Puts something drawn at `path`; what it leads to, if it is a link, is not the task's.
fn lay(path: &Path, outside: &Path, dice: &mut Dice) -> String {
    let precious = outside.join("precious");
    let kind = dice.one(&["link", "link", "link", "hop", "name", "file", "folder", "pipe"]);
    match kind {
        "hop" => {
            let mut hop = path.as_os_str().to_owned();
            hop.push(".hop");
            let hop = PathBuf::from(hop);
            symlink(outside, &hop).unwrap();
            symlink(hop.file_name().unwrap(), path).unwrap();
        }
        "name" => fs::hard_link(precious, path).unwrap(),
        "file" => fs::write(path, dice.word()).unwrap(),
        "folder" => fs::create_dir(path).unwrap(),
        "pipe" => fifo(path),
        _ => {
            let to = match dice.below(9) {
                0 => outside.to_owned(),
                1 => precious,
                2 => outside.join(dice.word()),
                3 => PathBuf::from("../../outside"),
                4 => PathBuf::from("../".repeat(1 + dice.below(12))),
                5 => PathBuf::from(path.file_name().unwrap()),
                6 => PathBuf::from(dice.one(&[".", "/", "/dev/null", "/proc/self/cwd", "/proc/self/fd/0"])),
                7 => outside.join("../outside/./precious"),
                _ => PathBuf::from(dice.word()),
            };
            symlink(&to, path).unwrap();
            return format!("link to {}", to.display());
        }
    }
    kind.to_owned()
}

#[test]
fn whatever_lies_where_a_task_would_make_something_it_is_neither_followed_nor_replaced() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for number in 0..LAID {
        let dir = tempfile::tempdir().unwrap();
        let (node, outside) = (Node::start(dir.path()), outside(dir.path()));
        let machines = node.host.dir.machines();
        let places: &[&str] = match dice.below(3) {
            0 => &["vm-1"],
            1 => &["vm-1.lease"],
            _ => &["vm-1", "vm-1.lease"],
        };
        let laid: Vec<String> = places
            .iter()
            .map(|place| format!("{place}: {}", lay(&machines.join(place), &outside, &mut dice)))
            .collect();
        let before = left(&node.host);
        let result = node.run(&launch(&node.site, "task-1", "vm-1"));
        let case = format!("{number} {laid:?}: {:?}", result.detail);
        assert_eq!(code(&result), Some(Code::ResourceBusy), "{case}");
        assert_eq!(left(&node.host), before, "{case}");
        is_untouched(&outside, &case);
    }
}

/// Does something drawn to the things of `waits-1`. What cannot be done any more is not done.
fn meddle(machines: &Path, outside: &Path, dice: &mut Dice) -> String {
    let folder = machines.join("waits-1");
    let inside = |dice: &mut Dice| {
        let mut path = folder.clone();
        for _ in 0..dice.below(4) {
            path.push(format!("in-{}", dice.word()));
        }
        // Not by a link that was put there before: that would be done outside by the test itself.
        if folder.is_symlink() {
            return machines.join("nowhere/nothing");
        }
        fs::create_dir_all(&path).ok();
        path.join(dice.word())
    };
    let (precious, lease) = (outside.join("precious"), machines.join("waits-1.lease"));
    let aside = machines.join(format!("moved-{}", dice.word()));
    let how = dice.below(8);
    match how {
        0 => symlink(outside, inside(dice)),
        1 => symlink(&precious, inside(dice)),
        2 => fs::hard_link(&precious, inside(dice)),
        3 => fs::rename(&folder, aside).and_then(|()| symlink(outside, &folder)),
        4 => fs::rename(&folder, aside).and_then(|()| fs::create_dir(&folder)),
        5 => fs::remove_file(folder.join("secret")).and_then(|()| symlink(&precious, folder.join("secret"))),
        6 => fs::remove_file(&lease).and_then(|()| symlink(&precious, &lease)),
        _ => fs::remove_file(&lease).and_then(|()| fs::hard_link(&precious, &lease)),
    }
    .ok();
    how.to_string()
}

#[test]
fn whatever_is_done_to_a_task_s_things_nothing_else_is_touched_when_they_are_taken_away() {
    let mut dice = Dice(0xd1b5_4a32_d192_ed03);
    for number in 0..DONE {
        let dir = tempfile::tempdir().unwrap();
        let (node, outside) = (Node::start(dir.path()), outside(dir.path()));
        let task = launch(&node.site, "task-1", "waits-1");
        node.deliver(&task);
        node.phase("start");
        let machines = node.host.dir.machines();
        let done: Vec<String> = (0..=dice.below(4))
            .map(|_| meddle(&machines, &outside, &mut dice))
            .collect();
        assert!(node.domain.tell(Input::Cancel(node.site.cancellation(&task))));
        let case = format!("{number} {done:?}");
        assert_ne!(node.result(&task).outcome, TaskOutcome::Completed, "{case}");
        is_untouched(&outside, &case);
    }
}

#[test]
fn nothing_else_is_touched_while_a_task_s_names_are_swapped_for_links_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let (node, outside) = (Node::start(dir.path()), outside(dir.path()));
    let machines = node.host.dir.machines();
    let mut swaps = 0u64;
    for number in 0..SWAPPED {
        let name = format!("races-{number}");
        let over = AtomicBool::new(false);
        swaps += std::thread::scope(|scope| {
            let swapper = scope.spawn(|| {
                let (end, mut swaps) = (Instant::now() + PATIENCE, 0);
                let mut dice = Dice(0xa076_1d64_78bd_642f ^ u64::try_from(number).unwrap());
                while !over.load(Ordering::Acquire) && Instant::now() < end {
                    let place = machines.join(dice.one(&[
                        &name,
                        &format!("{name}.lease"),
                        &format!("{name}/secret"),
                    ]));
                    let aside = machines.join(format!("aside-{swaps}"));
                    let to = if dice.below(2) == 0 {
                        outside.clone()
                    } else {
                        outside.join("precious")
                    };
                    if fs::rename(&place, &aside).is_ok() {
                        swaps += u64::from(symlink(to, &place).is_ok());
                        std::thread::sleep(Duration::from_micros(
                            50 + u64::try_from(dice.below(500)).unwrap(),
                        ));
                        fs::remove_file(&place).ok();
                        fs::rename(&aside, &place).ok();
                    }
                }
                swaps
            });
            let (made, gone) = (format!("made-{number}"), format!("gone-{number}"));
            let ended = node.run(&launch(&node.site, &made, &name));
            let taken = node.run(&terminate(&node.site, &gone, &name));
            over.store(true, Ordering::Release);
            println!("{name}: {:?}, {:?}", ended.outcome, taken.outcome);
            swapper.join().unwrap()
        });
        is_untouched(&outside, &name);
    }
    println!("{swaps} swaps");
    assert!(swaps > 0, "nothing was swapped: nothing is shown");
}
