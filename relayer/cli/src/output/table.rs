//! Aligned tables.

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table with a heading.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    heads: [(&'static str, Align); N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(heads: [(&'static str, Align); N]) -> Self {
        Self {
            heads,
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        // Text of others must not break the lines.
        self.rows.push(cells.map(|cell| {
            cell.chars()
                .map(|c| if c.is_control() { '?' } else { c })
                .collect()
        }));
    }

    /// The table: two spaces between columns, none at the ends of lines.
    pub(crate) fn finish(&self) -> String {
        let heads = self.heads.map(|(name, _)| name.to_owned());
        let mut widths = [0usize; N];
        for row in std::iter::once(&heads).chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(widths).zip(self.heads) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
                match align {
                    Align::Left => line.extend([cell.as_str(), &gap]),
                    Align::Right => line.extend([gap.as_str(), cell]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let mut table = Table::new([
            ("NAME", Align::Left),
            ("CORES", Align::Right),
            ("NOTE", Align::Left),
        ]);
        table.row(["a".into(), "128".into(), String::new()]);
        table.row(["longer-name".into(), "4".into(), "evil\nrow".into()]);
        assert_eq!(
            table.finish(),
            "NAME         CORES  NOTE\na              128\nlonger-name      4  evil?row\n"
        );
    }
}
