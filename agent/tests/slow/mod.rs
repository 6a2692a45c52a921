//! A file system in memory, by FUSE, whose `fsync` takes as long as a test says: a slow disk. As with any other, the kernel
//! lets no process end before an `fsync` that one of its threads has begun.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

// The kernel's questions, as `linux/fuse.h` counts them.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const RENAME: u32 = 12;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const FSYNCDIR: u32 = 30;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOSYS: i32 = 38;

const FOLDER: u32 = 0o040_000;
/// Of a mode, what is no permission.
const KIND: u32 = 0o170_000;
/// Of what is set: the mode, and the size.
const SETS_MODE: u32 = 1;
const SETS_SIZE: u32 = 8;
/// It is not mounted yet; whoever asked has gone.
const PASSES: [ErrorKind; 3] = [
    ErrorKind::PermissionDenied,
    ErrorKind::NotFound,
    ErrorKind::Interrupted,
];
/// Bytes before each question's own.
const HEADER: usize = 40;
/// The most that is written at once.
const PIECE: u32 = 1 << 16;

/// What it holds outlives a mount.
#[derive(Debug, Clone)]
pub(crate) struct SlowDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tree: Mutex<Tree>,
    takes: Mutex<Duration>,
    syncs: AtomicUsize,
}

impl SlowDisk {
    /// Empty, and quick.
    pub(crate) fn new() -> Self {
        let root = Node {
            mode: FOLDER | 0o755,
            links: 1,
            ..Node::default()
        };
        Self(Arc::new(Shared {
            tree: Mutex::new(Tree(vec![root])),
            takes: Mutex::default(),
            syncs: AtomicUsize::new(0),
        }))
    }

    /// From here on each `fsync` takes so long.
    pub(crate) fn takes(&self, time: Duration) {
        *self.0.takes.lock().unwrap() = time;
    }

    /// How many were begun.
    pub(crate) fn syncs(&self) -> usize {
        self.0.syncs.load(Ordering::SeqCst)
    }

    /// What a file holds, if it is there.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let mut tree = self.0.tree.lock().unwrap();
        let mut at = 1;
        for name in path.split('/') {
            at = *tree.node(at).names.get(name.as_bytes())?;
        }
        String::from_utf8(tree.node(at).content.clone()).ok()
    }

    /// Answers the kernel, from the moment that the device is mounted until it is mounted no more.
    pub(crate) fn serve(&self, device: File) {
        let (disk, device) = (self.clone(), Arc::new(device));
        thread::spawn(move || {
            let mut question = vec![0; 1 << 17];
            loop {
                match (&*device).read(&mut question) {
                    Ok(n) => disk.asked(&device, &question[..n]),
                    Err(e) if PASSES.contains(&e.kind()) => thread::sleep(Duration::from_millis(5)),
                    Err(_) => return,
                }
            }
        });
    }

    fn asked(&self, device: &Arc<File>, question: &[u8]) {
        let kind = u32_at(question, 4);
        let (unique, at) = (u64_at(question, 8), u64_at(question, 16));
        match kind {
            // These have no answer. What was begun goes on.
            FORGET | BATCH_FORGET | INTERRUPT => {}
            FSYNC | FSYNCDIR => {
                self.0.syncs.fetch_add(1, Ordering::SeqCst);
                let (time, device) = (*self.0.takes.lock().unwrap(), Arc::clone(device));
                // Whoever else asks is answered meanwhile.
                thread::spawn(move || {
                    thread::sleep(time);
                    tell(&device, unique, Ok(Vec::new()));
                });
            }
            _ => {
                let mut tree = self.0.tree.lock().unwrap();
                tell(device, unique, tree.answer(kind, at, &question[HEADER..]));
            }
        }
    }
}

/// Its body, or the number of an error.
type Answer = Result<Vec<u8>, i32>;

fn tell(mut device: &File, unique: u64, answer: Answer) {
    let (error, body) = match answer {
        Ok(body) => (0, body),
        Err(number) => (-number, Vec::new()),
    };
    let mut all = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
    all.extend(error.to_ne_bytes());
    all.extend(unique.to_ne_bytes());
    all.extend(body);
    // Whoever asked may have gone.
    device.write_all(&all).ok();
}

/// A file or a folder.
#[derive(Debug, Default)]
struct Node {
    mode: u32,
    links: u32,
    content: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
}

/// By their numbers, from 1 (the root) on. Nothing is taken out: a file without a name may be open.
#[derive(Debug)]
struct Tree(Vec<Node>);

impl Tree {
    fn node(&mut self, number: u64) -> &mut Node {
        &mut self.0[usize::try_from(number).unwrap() - 1]
    }

    fn answer(&mut self, kind: u32, at: u64, body: &[u8]) -> Answer {
        match kind {
            INIT => {
                // Version 7.31, how much is read ahead, flags, limits of the background, the longest piece, and a clock of
                // nanoseconds.
                let mut all = [7, 31, PIECE, 0, 0, PIECE, 1].map(u32::to_ne_bytes).concat();
                all.resize(64, 0);
                Ok(all)
            }
            LOOKUP => {
                let found = self.node(at).names.get(name(body)).copied();
                found.map(|number| self.entry(number)).ok_or(ENOENT)
            }
            GETATTR => Ok([words(&[0, 0]), self.attributes(at)].concat()),
            SETATTR => {
                let (sets, size, mode) = (u32_at(body, 0), size_at(body, 16), u32_at(body, 68));
                let node = self.node(at);
                if sets & SETS_MODE != 0 {
                    node.mode = (node.mode & KIND) | (mode & !KIND);
                }
                if sets & SETS_SIZE != 0 {
                    node.content.resize(size, 0);
                }
                Ok([words(&[0, 0]), self.attributes(at)].concat())
            }
            MKNOD => self.add(at, name(&body[16..]), u32_at(body, 0)),
            MKDIR => self.add(at, name(&body[8..]), FOLDER | u32_at(body, 0)),
            UNLINK | RMDIR => {
                let gone = self.node(at).names.remove(name(body)).ok_or(ENOENT)?;
                self.node(gone).links -= 1;
                Ok(Vec::new())
            }
            RENAME => {
                let (old, rest) = (name(&body[8..]), &body[8..]);
                let moved = self.node(at).names.remove(old).ok_or(ENOENT)?;
                let new = name(&rest[old.len() + 1..]).to_vec();
                if let Some(replaced) = self.node(u64_at(body, 0)).names.insert(new, moved) {
                    self.node(replaced).links -= 1;
                }
                Ok(Vec::new())
            }
            LINK => {
                let (linked, name) = (u64_at(body, 0), name(&body[8..]));
                if self.node(at).names.contains_key(name) {
                    return Err(EEXIST);
                }
                self.node(at).names.insert(name.to_vec(), linked);
                self.node(linked).links += 1;
                Ok(self.entry(linked))
            }
            OPEN | OPENDIR => Ok(words(&[0, 0])),
            READ => {
                let content = &self.node(at).content;
                let from = size_at(body, 8).min(content.len());
                let to = content.len().min(from + length_at(body, 16));
                Ok(content[from..to].to_vec())
            }
            WRITE => {
                let (from, length) = (size_at(body, 8), length_at(body, 16));
                let content = &mut self.node(at).content;
                content.resize(content.len().max(from + length), 0);
                content[from..from + length].copy_from_slice(&body[40..40 + length]);
                Ok([u32_at(body, 16), 0].map(u32::to_ne_bytes).concat())
            }
            READDIR => Ok(self.listed(at, size_at(body, 8), length_at(body, 16))),
            RELEASE | RELEASEDIR => Ok(Vec::new()),
            _ => Err(ENOSYS),
        }
    }

    fn add(&mut self, folder: u64, name: &[u8], mode: u32) -> Answer {
        if self.node(folder).names.contains_key(name) {
            return Err(EEXIST);
        }
        self.0.push(Node {
            mode,
            links: 1,
            ..Node::default()
        });
        let number = u64::try_from(self.0.len()).unwrap();
        self.node(folder).names.insert(name.to_vec(), number);
        Ok(self.entry(number))
    }

    /// The names in a folder from one on, as many as there is room for.
    fn listed(&mut self, folder: u64, from: usize, room: usize) -> Vec<u8> {
        let names = self.node(folder).names.clone();
        let mut all = Vec::new();
        for (place, (name, number)) in names.iter().enumerate().skip(from) {
            let kind = self.node(*number).mode >> 12;
            let mut one = words(&[*number, u64::try_from(place + 1).unwrap()]);
            one.extend(u32::try_from(name.len()).unwrap().to_ne_bytes());
            one.extend(kind.to_ne_bytes());
            one.extend(name);
            one.resize(one.len().next_multiple_of(8), 0);
            if all.len() + one.len() > room {
                break;
            }
            all.extend(one);
        }
        all
    }

    /// What the kernel is told of a name: it is to remember nothing of it.
    fn entry(&mut self, number: u64) -> Vec<u8> {
        [words(&[number, 0, 0, 0, 0]), self.attributes(number)].concat()
    }

    fn attributes(&mut self, number: u64) -> Vec<u8> {
        let node = self.node(number);
        let size = u64::try_from(node.content.len()).unwrap();
        // Its blocks, and when it was read, written and changed; root's, no device, pages.
        let long = words(&[number, size, size.div_ceil(512), 0, 0, 0]);
        let short = [0, 0, 0, node.mode, node.links, 0, 0, 0, 4096, 0];
        [long, short.map(u32::to_ne_bytes).concat()].concat()
    }
}

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn length_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u32_at(bytes, at)).unwrap()
}

fn size_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64_at(bytes, at)).unwrap()
}

/// The first of the names that end with a zero.
fn name(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap()
}
