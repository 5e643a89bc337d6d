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

/// Whether progress is worth showing.
pub(crate) fn shows_progress() -> bool {
    std::io::stderr().is_terminal()
}

/// Asks a question that only `yes` answers.
pub(crate) fn confirms(question: &str) -> std::io::Result<bool> {
    write!(std::io::stderr().lock(), "{question} Only `yes` does: ")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
