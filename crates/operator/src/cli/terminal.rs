//! The two streams: data to standard output, messages for people to standard error.
//!
//! Styled text loses its styles where the stream is no terminal; `NO_COLOR` and `CLICOLOR_FORCE` override that.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::builder::styling::{AnsiColor, Style};

/// Style of the word `error`.
pub(crate) const ERROR: Style = AnsiColor::BrightRed.on_default().bold();
/// Style of the word `warning`.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Writes a message for people, on a line of its own. Control characters, which may come from a server, are left out.
pub(crate) fn say(line: &str) {
    say_styled(&printable(line));
}

/// Writes a message with its level in front.
pub(crate) fn say_as(style: Style, level: &str, message: &str) {
    say_styled(&format!("{style}{level}{style:#}: {}", printable(message)));
}

/// Writes a styled message, on a line of its own.
pub(crate) fn say_styled(text: &str) {
    // A reader that has gone away is no reason to stop.
    writeln!(anstream::stderr().lock(), "{text}").ok();
}

/// The text without characters that a terminal acts upon, but for line breaks.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|it| *it == '\n' || !it.is_control()).collect()
}

/// Writes data as it is.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Writes styled text as data.
pub(crate) fn print_styled(text: &str) -> std::io::Result<()> {
    let mut output = anstream::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Whether a person can be asked.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// One line about one object of many, overwritten until the object is done. Only on a terminal.
pub(crate) struct Progress {
    shown: bool,
    /// The number of the object, how many there are, and the object.
    head: String,
}

impl Progress {
    pub(crate) fn new(quiet: bool, number: usize, total: usize, object: &str) -> Self {
        Self { shown: !quiet && std::io::stderr().is_terminal(), head: head(number, total, object) }
    }

    /// Replaces the line with what is being done now.
    pub(crate) fn now(&self, words: &str) {
        self.write(words, "");
    }

    /// Replaces the line with the result, and ends it.
    pub(crate) fn end(self, words: &str) {
        self.write(words, "\n");
    }

    fn write(&self, words: &str, end: &str) {
        if self.shown {
            // Back to the start of the line, and clear it.
            write!(std::io::stderr().lock(), "\r\x1b[K{}: {words}{end}", self.head).ok();
        }
    }
}

fn head(number: usize, total: usize, object: &str) -> String {
    let width = total.to_string().len();
    format!("[{number:>width$}/{total}] {object}")
}

/// Asks for one line. The question is asked beside the runtime, so that an interruption is noticed meanwhile.
pub(crate) async fn ask(question: String) -> std::io::Result<String> {
    let asked = tokio::task::spawn_blocking(move || {
        let mut terminal = anstream::stderr().lock();
        write!(terminal, "{question} ")?;
        terminal.flush()?;
        drop(terminal);
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    });
    asked.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r\nc\u{9b}d"), "a[2Jb\ncd");
    }

    #[test]
    fn numbers_stand_below_each_other() {
        assert_eq!(head(3, 12, "CoderGroup a"), "[ 3/12] CoderGroup a");
        assert_eq!(head(12, 12, "CoderGroup a"), "[12/12] CoderGroup a");
    }
}
