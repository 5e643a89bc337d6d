//! The two streams: data to standard output, words for people to standard error.

use std::io::Write as _;

/// Tells a person something, on a line of its own.
pub(crate) fn say(line: &str) {
    // A reader that has gone away is no reason to stop.
    writeln!(std::io::stderr().lock(), "{line}").ok();
}

/// Prints a line of data.
pub(crate) fn print(line: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}
