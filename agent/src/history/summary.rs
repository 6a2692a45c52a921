use serde_json::{Map, Value, json};

use super::{Sample, fields};
use crate::sample::Category;

/// What the samples of a category say together: how many they are, of when, and of each figure that was ever known the least,
/// the mean (rounded towards zero), the most and the last; and the same in words. None without samples.
#[must_use]
pub fn summary(category: Category, samples: &[Sample]) -> Option<(Value, String)> {
    let (first, last) = (samples.first()?, samples.last()?);
    let (mut figures, mut words) = (Map::new(), Vec::new());
    for (place, name) in fields(category).iter().enumerate() {
        let known = || {
            samples
                .iter()
                .filter_map(|s| s.figures.get(place).copied().flatten())
        };
        let (Some(least), Some(most), Some(newest)) = (known().min(), known().max(), known().next_back())
        else {
            continue;
        };
        let count = i128::try_from(known().count()).unwrap_or(i128::MAX);
        let mean = known().map(i128::from).sum::<i128>().checked_div(count);
        let mean = mean.and_then(|n| i64::try_from(n).ok());
        let unknown = samples.len().saturating_sub(known().count());
        let figure = json!({"least": least, "mean": mean, "most": most, "last": newest, "unknown": unknown});
        figures.insert((*name).to_owned(), figure);
        words.push(format!("{name} {least} to {most}"));
    }
    let report = json!({"samples": samples.len(), "from": first.at, "to": last.at, "figures": figures});
    Some((report, words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_least_mean_most_and_last_and_how_often_it_was_unknown() {
        let sample = |at, cpu: Option<i64>, memory| Sample {
            at,
            figures: vec![cpu, Some(memory), None, None],
        };
        let samples = [
            sample(10, Some(3), 50),
            sample(20, None, 50),
            sample(30, Some(98), 50),
        ];
        let (report, words) = summary(Category::Utilization, &samples).unwrap();
        assert_eq!(
            report,
            json!({"samples": 3, "from": 10, "to": 30, "figures": {
                "cpu_percent": {"least": 3, "mean": 50, "most": 98, "last": 98, "unknown": 1},
                "memory_percent": {"least": 50, "mean": 50, "most": 50, "last": 50, "unknown": 0},
            }})
        );
        assert_eq!(words, "cpu_percent 3 to 98, memory_percent 50 to 50");
        assert_eq!(summary(Category::Utilization, &[]), None);
        // What a file may hold and no host has.
        let huge = [sample(1, Some(i64::MAX), 0), sample(2, Some(i64::MAX), 0)];
        let (report, _) = summary(Category::Utilization, &huge).unwrap();
        assert_eq!(report["figures"]["cpu_percent"]["mean"], i64::MAX);
    }
}
