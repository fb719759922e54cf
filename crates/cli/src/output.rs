//! Printing.

use std::io::{self, Write};

use anyhow::{Context, Result};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::args::Output;

/// A table's column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Words.
    Text(&'static str),
    /// Numbers, to the right.
    Number(&'static str),
}

/// Prints a value as JSON or YAML.
pub fn structured<T: Serialize + ?Sized>(value: &T, output: Output) -> Result<()> {
    let text = match output {
        Output::Yaml => serde_saphyr::to_string(&value).context("the answer does not fit YAML")?,
        Output::Json | Output::Table => format!("{}\n", serde_json::to_string_pretty(value)?),
    };
    print(&text)
}

/// Writes to stdout. A closed pipe is an error that [`is_broken_pipe`] knows.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Lays rows out below a heading.
pub fn table(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    // A serial console does not know how wide it is: a column of one letter each would be all that fits.
    if table.width().is_some_and(|width| width == 0) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(columns.iter().map(|column| match column {
        Column::Text(name) | Column::Number(name) => *name,
    }));
    for row in rows {
        table.add_row(row.into_iter().map(Cell::new));
    }
    for (position, column) in columns.iter().enumerate() {
        let alignment = match column {
            Column::Text(_) => CellAlignment::Left,
            Column::Number(_) => CellAlignment::Right,
        };
        if let Some(column) = table.column_mut(position) {
            column.set_cell_alignment(alignment);
            column.set_padding((0, 2));
        }
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

/// Whether the reader of our output has gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

/// `1234567` as `1.23 M`: three digits and the power of 1000.
pub fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T", "P"];
    let mut value = value;
    let mut unit = 0;
    // 999.95 would be shown as 1000 of its unit.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{value:.0}"),
        (_, ..10.0) => format!("{value:.2} {}", units[unit]),
        (_, ..100.0) => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 999.0, 1000.0, 1234.0, 12345.0, 123_456.0, 999_600.0, 5e9].map(short);
        assert_eq!(shown, ["0", "999", "1.00 k", "1.23 k", "12.3 k", "123 k", "1.00 M", "5.00 G"]);
    }

    #[test]
    fn a_table_aligns_words_left_and_numbers_right() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["bbb".to_owned(), "1000".to_owned()]];
        let text = table(&[Column::Text("NAME"), Column::Number("COUNT")], rows);
        assert_eq!(text, "NAME  COUNT\na         1\nbbb    1000\n");
    }

    #[test]
    fn a_closed_pipe_is_recognised() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("while printing");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}
