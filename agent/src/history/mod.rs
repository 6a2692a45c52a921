//! Samples of each category, kept on disk for `status` and for whoever looks for a cause.
//!
//! One file a category, of as many lines as samples are kept, written in turn and in place: it takes no memory, never
//! grows, and a full disk that cannot take a new file still takes the next sample. A line is
//! `<number> <UNIX seconds> <figure> …`, `-` for a figure that was unknown; the highest number is the newest. Lines that
//! are older than the retention are blanked with the next sample.

mod ring;
mod summary;
mod values;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use summary::summary;
pub use values::{Values, fields, values};

use crate::config::SamplingConfig;
use crate::files::{FileError, create_directory};
use crate::sample::Category;
use ring::Ring;

/// The figures of one category at one moment, in the order of [`fields`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// UNIX seconds.
    pub at: u64,
    /// None: unknown.
    pub figures: Vec<Option<i64>>,
}

/// The samples of this node.
#[derive(Debug)]
pub struct History {
    dir: PathBuf,
    samples: u32,
    retention: Duration,
    /// In the order of [`Category::ALL`]; opened with the first sample.
    kept: [Kept; Category::ALL.len()],
}

#[derive(Debug, Default)]
struct Kept {
    ring: Option<Ring>,
    /// When the newest sample was measured.
    last: Option<Instant>,
}

impl History {
    /// In `dir`, bounded by `metrics_buffer_size` and `metrics_retention`. Nothing is touched yet.
    #[must_use]
    pub fn new(dir: &Path, bounds: &SamplingConfig) -> Self {
        Self {
            dir: dir.to_owned(),
            samples: bounds.metrics_buffer_size,
            retention: bounds.metrics_retention,
            kept: Default::default(),
        }
    }

    /// Other bounds; the newest samples stay.
    pub fn bound(&mut self, bounds: &SamplingConfig) {
        if (self.samples, self.retention) != (bounds.metrics_buffer_size, bounds.metrics_retention) {
            self.samples = bounds.metrics_buffer_size;
            self.retention = bounds.metrics_retention;
            for kept in &mut self.kept {
                kept.ring = None;
            }
        }
    }

    /// Keeps a sample, unless it is kept already or knows nothing, and forgets those of `category` that are older than
    /// the retention. `now` is the wall clock at `moment`, in UNIX seconds.
    ///
    /// # Errors
    /// IO; the next sample tries again.
    pub fn record(
        &mut self,
        category: Category,
        values: &Values,
        now: u64,
        moment: Instant,
    ) -> Result<(), FileError> {
        let place = Category::ALL.iter().position(|c| *c == category);
        let Some(kept) = place.and_then(|i| self.kept.get_mut(i)) else {
            return Ok(());
        };
        let oldest = now.saturating_sub(self.retention.as_secs());
        // Also where nothing new is known: what is kept grows old by itself.
        if let Some(ring) = &mut kept.ring {
            ring.forget(oldest)?;
        }
        let Some(taken) = values.taken.filter(|t| kept.last.is_none_or(|last| *t > last)) else {
            return Ok(());
        };
        if values.figures.iter().all(Option::is_none) {
            return Ok(());
        }
        let at = now.saturating_sub(moment.saturating_duration_since(taken).as_secs());
        let ring = match &mut kept.ring {
            Some(ring) => ring,
            none => {
                create_directory(&self.dir)?;
                none.insert(Ring::open(&path(&self.dir, category), self.samples, oldest)?)
            }
        };
        ring.push(&Sample {
            at,
            figures: values.figures.clone(),
        })?;
        kept.last = Some(taken);
        Ok(())
    }

    /// The samples of `category` in `dir` that are not older than `oldest` (UNIX seconds), oldest first.
    ///
    /// # Errors
    /// IO; a category without samples is empty.
    pub fn read(dir: &Path, category: Category, oldest: u64) -> Result<Vec<Sample>, FileError> {
        ring::read(&path(dir, category), oldest)
    }
}

fn path(dir: &Path, category: Category) -> PathBuf {
    let name = match category {
        Category::Capacity => "capacity",
        Category::HealthStatus => "health_status",
        Category::Utilization => "utilization",
        Category::Gpu => "gpu",
        Category::Latency => "latency",
        Category::JobCounts => "job_counts",
        Category::Temperature => "temperature",
    };
    dir.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Figures;

    #[test]
    fn a_sample_is_kept_once_with_the_time_it_was_measured() {
        let dir = tempfile::tempdir().unwrap();
        let mut h = History::new(&dir.path().join("history"), &SamplingConfig::default());
        let start = Instant::now();
        let mut f = Figures::default();
        let category = Category::Utilization;
        h.record(category, &values(category, &f, start), 1000, start)
            .unwrap();
        assert!(!dir.path().join("history").exists(), "nothing is known yet");
        f.cpu.set(Some(40), start);
        let later = start + Duration::from_secs(4);
        for _ in 0..3 {
            h.record(category, &values(category, &f, later), 1004, later)
                .unwrap();
        }
        f.cpu.set(Some(50), later);
        h.record(category, &values(category, &f, later), 1004, later)
            .unwrap();
        let all = History::read(&dir.path().join("history"), category, 0).unwrap();
        assert_eq!(all.iter().map(|s| s.at).collect::<Vec<_>>(), [1000, 1004]);
        let cpu = fields(category).iter().position(|f| *f == "cpu_percent").unwrap();
        assert_eq!((all[0].figures[cpu], all[1].figures[cpu]), (Some(40), Some(50)));
        assert_eq!(all[0].figures.len(), fields(category).len());
    }

    #[test]
    fn a_sample_is_not_kept_for_longer_than_the_retention() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("history");
        let (category, start) = (Category::Utilization, Instant::now());
        let mut h = History::new(&dir, &SamplingConfig::default());
        h.retention = Duration::from_secs(3600);
        let mut f = Figures::default();
        let mut look = |second: u64, measures: bool| {
            let moment = start + Duration::from_secs(second);
            if measures {
                f.cpu.set(Some(40), moment);
            }
            h.record(category, &values(category, &f, moment), 1000 + second, moment)
                .unwrap();
            let all = History::read(&dir, category, 0).unwrap();
            all.iter().map(|s| s.at - 1000).collect::<Vec<_>>()
        };
        look(0, true);
        look(1800, true);
        assert_eq!(look(3600, true), [0, 1800, 3600]);
        assert_eq!(look(3601, true), [1800, 3600, 3601]);
        // Nothing is measured any more.
        assert_eq!(look(5401, false), [3600, 3601]);
        assert!(look(9000, false).is_empty());
    }

    #[test]
    fn every_category_has_a_file_and_names_for_its_figures() {
        let now = Instant::now();
        let mut names: Vec<_> = Category::ALL.iter().map(|c| path(Path::new("/h"), *c)).collect();
        names.dedup();
        assert_eq!(names.len(), Category::ALL.len());
        for c in Category::ALL {
            assert_eq!(values(c, &Figures::default(), now).figures.len(), fields(c).len());
        }
    }
}
