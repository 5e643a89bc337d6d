//! Markdown tables.

/// A table with a header row.
pub(super) struct Table {
    text: String,
}

impl Table {
    pub(super) fn new(columns: &[&str]) -> Self {
        let mut table = Self { text: String::new() };
        table.push(columns.iter().map(|it| (*it).to_owned()));
        table.push(columns.iter().map(|_| "---".to_owned()));
        table
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.push(cells.into_iter());
    }

    fn push(&mut self, cells: impl Iterator<Item = String>) {
        let cells: Vec<String> = cells.map(|it| cell(&it)).collect();
        self.text.push_str("| ");
        self.text.push_str(&cells.join(" | "));
        self.text.push_str(" |\n");
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// A cell is one line, and a bar in it does not end it.
fn cell(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ").replace('|', "\\|")
}

pub(super) fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_with_a_bar_and_a_line_break_stays_one_cell() {
        let mut table = Table::new(&["a", "b"]);
        table.row(["one\ntwo".to_owned(), "x|y".to_owned()]);
        assert_eq!(table.finish(), "| a | b |\n| --- | --- |\n| one two | x\\|y |\n");
    }
}
