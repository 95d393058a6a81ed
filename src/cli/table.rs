//! Columns under each other.

use std::fmt;

/// Rows of texts; numbers are not set apart.
pub struct Table(Vec<Vec<String>>);

impl Table {
    pub fn new<const N: usize>(head: [&str; N]) -> Table {
        Table(vec![head.map(str::to_owned).to_vec()])
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let widths = self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        for row in &self.0 {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A number that may not be known.
pub fn known(number: Option<impl fmt::Display>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}
