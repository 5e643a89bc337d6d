//! The two streams: data to standard output, words for people to standard error.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// Tells a person something, on a line of its own.
pub(crate) fn say(line: &str) {
    // A reader that has gone away is no reason to stop.
    writeln!(std::io::stderr().lock(), "{line}").ok();
}

/// Prints data.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Whether somebody is there to be asked.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// One line for what is being done to one object of many, which is written over until the object is done. Only for people
/// at a terminal.
pub(crate) struct Progress {
    shown: bool,
    /// Which of how many, and which object.
    head: String,
}

impl Progress {
    pub(crate) fn new(quiet: bool, number: usize, total: usize, object: &str) -> Self {
        Self { shown: !quiet && std::io::stderr().is_terminal(), head: head(number, total, object) }
    }

    /// What is being done now.
    pub(crate) fn now(&self, words: &str) {
        self.write(words, "");
    }

    /// What became of it. The next words have a line of their own.
    pub(crate) fn end(self, words: &str) {
        self.write(words, "\n");
    }

    fn write(&self, words: &str, end: &str) {
        if self.shown {
            // To the beginning of the line, and away with what stands there.
            write!(std::io::stderr().lock(), "\r\x1b[K{}: {words}{end}", self.head).ok();
        }
    }
}

fn head(number: usize, total: usize, object: &str) -> String {
    let width = total.to_string().len();
    format!("[{number:>width$}/{total}] {object}")
}

/// Asks a question that only `yes` answers. It is asked beside the runtime, so that an interruption is heard meanwhile.
pub(crate) async fn confirms(question: String) -> std::io::Result<bool> {
    let asked = tokio::task::spawn_blocking(move || {
        write!(std::io::stderr().lock(), "{question} Only `yes` does: ")?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        Ok(answer.trim() == "yes")
    });
    asked.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other() {
        assert_eq!(head(3, 12, "CoderGroup a"), "[ 3/12] CoderGroup a");
        assert_eq!(head(12, 12, "CoderGroup a"), "[12/12] CoderGroup a");
    }
}
