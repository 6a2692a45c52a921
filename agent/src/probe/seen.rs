//! What was there once: a restart must not make the loss of a part forgotten. It is kept until a person accepts that it
//! is gone (`service return --force`, a new registration): then the file is taken away, and what is there begins anew.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::kept::Kept;

/// The most that was seen.
#[derive(Debug)]
pub struct Seen<T> {
    kept: Kept,
    value: Option<T>,
    /// The file was there: if it is not any more, somebody has taken it away.
    on_disk: bool,
    said: bool,
}

impl<T: Clone + Default + PartialEq + Serialize + DeserializeOwned> Seen<T> {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(kept: impl Into<Kept>) -> Self {
        Self {
            kept: kept.into(),
            value: None,
            on_disk: false,
            said: false,
        }
    }

    /// What was seen until now.
    #[must_use]
    pub fn value(&mut self) -> T {
        if self.on_disk && self.kept.is_gone() {
            self.on_disk = false;
            self.value = Some(T::default());
        }
        if self.value.is_none() {
            self.value = self.kept.load();
            self.on_disk = self.value.is_some();
        }
        self.value.clone().unwrap_or_default()
    }

    /// What was seen until now, with what is there.
    pub fn keep(&mut self, value: T) {
        let same = self.value.as_ref().unwrap_or(&T::default()) == &value;
        if same && (self.on_disk || value == T::default()) {
            return;
        }
        match self.kept.save(&value) {
            Ok(()) => {
                self.on_disk |= self.kept.writes();
                self.said = false;
            }
            Err(e) if !std::mem::replace(&mut self.said, true) => {
                tracing::warn!("what was there is not kept over a restart: {e}");
            }
            Err(_) => {}
        }
        self.value = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_outlives_a_restart_and_ends_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpus.json");
        let mut seen = Seen::<u16>::new(path.clone());
        assert_eq!(seen.value(), 0);
        seen.keep(0);
        assert!(!path.exists(), "nothing is nothing to keep");
        seen.keep(8);
        assert_eq!(Seen::<u16>::new(path.clone()).value(), 8);
        let mut looks = Seen::<u16>::new(Kept::read_only(path.clone()));
        assert_eq!(looks.value(), 8);
        looks.keep(9);
        assert_eq!(Seen::<u16>::new(path.clone()).value(), 8);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(seen.value(), 0);
        seen.keep(7);
        assert_eq!((seen.value(), Seen::<u16>::new(path).value()), (7, 7));
    }

    #[test]
    fn without_a_place_to_keep_it_nothing_is_forgotten_meanwhile() {
        let mut seen = Seen::<u16>::new(std::path::PathBuf::from("/proc/none/gpus.json"));
        seen.keep(8);
        assert_eq!(seen.value(), 8);
    }
}
