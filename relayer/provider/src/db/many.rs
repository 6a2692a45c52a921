//! Statements for many rows at once: each way to the database's thread and back costs more than a row.

/// Rows of one statement, falling. Few sizes: each is prepared on its own.
const SIZES: [usize; 3] = [64, 8, 1];

/// A statement for so many rows.
#[derive(Debug)]
pub(crate) struct Sized {
    rows: usize,
    sql: String,
}

/// The statements of each size.
pub(crate) fn sized(sql: impl Fn(usize) -> String) -> Vec<Sized> {
    let one = |rows| Sized { rows, sql: sql(rows) };
    SIZES.into_iter().map(one).collect()
}

/// `row` so many times.
pub(crate) fn joined(rows: usize, row: &str, by: &str) -> String {
    vec![row; rows].join(by)
}

/// All of `rows` in pieces, each with the statement of its size.
pub(crate) fn split<'r, T>(
    mut rows: &'r [T],
    statements: &'static [Sized],
) -> impl Iterator<Item = (&'r [T], &'static str)> {
    std::iter::from_fn(move || {
        let fitting = statements.iter().find(|s| s.rows <= rows.len())?;
        let (now, later) = rows.split_at_checked(fitting.rows)?;
        rows = later;
        (!now.is_empty()).then_some((now, fitting.sql.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_are_in_one_piece_each_with_a_statement_of_its_size() {
        let statements: &'static [Sized] = sized(|rows| joined(rows, "?", ",")).leak();
        for count in [0, 1, 7, 8, 63, 64, 65, 500] {
            let all: Vec<usize> = (0..count).collect();
            let mut seen = Vec::new();
            for (piece, sql) in split(&all, statements) {
                assert_eq!(sql.matches('?').count(), piece.len());
                seen.extend_from_slice(piece);
            }
            assert_eq!(seen, all);
        }
    }
}
