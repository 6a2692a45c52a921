//! A recorded tree of a node, unpacked.

use std::fs;
use std::path::Path;

/// One file a section: `== path`, then its lines; `== path -> target` is a symbolic link.
pub(crate) fn unpack(text: &str, dir: &Path) {
    for section in text.split("== ").skip(1) {
        let (path, content) = section.split_once('\n').unwrap();
        let (path, target) = path
            .split_once(" -> ")
            .map_or((path, None), |(p, t)| (p, Some(t)));
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match target {
            Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            None => fs::write(path, content).unwrap(),
        }
    }
}
