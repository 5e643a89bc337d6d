//! Colour for plain text, by the mark at the start of each line.

use clap::builder::styling::{AnsiColor, Style};

use super::text::DEPLOYMENT;
use crate::cli::terminal::printable;

/// Adds styles to a rendered plan. Control characters, which may come from a server, are left out.
pub(super) fn paint(text: &str) -> String {
    let mut painted = String::new();
    for line in printable(text).split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |it| (it, "\n"));
        match style_of(line) {
            Some(style) => painted.extend([
                style.render().to_string().as_str(),
                line,
                style.render_reset().to_string().as_str(),
                end,
            ]),
            None => painted.extend([line, end]),
        }
    }
    painted
}

fn style_of(line: &str) -> Option<Style> {
    if line.starts_with(DEPLOYMENT) {
        return Some(Style::new().bold());
    }
    let colour = match line.trim_start().split_once(' ')?.0 {
        "+" => AnsiColor::Green,
        "-" | "!" => AnsiColor::Red,
        "~" => AnsiColor::Yellow,
        _ => return None,
    };
    Some(colour.on_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "Deployment https://x/\n\nCoderGroup a: group b\n  ~ update: x\n      + icon: \"a\"\n1 to change\n";

    #[test]
    fn styles_change_nothing_but_colour() {
        let painted = paint(TEXT);
        assert_eq!(anstream::adapter::strip_str(&painted).to_string(), TEXT);
        assert!(painted.contains("\u{1b}[32m      + icon: \"a\"\u{1b}[0m\n"), "{painted:?}");
        assert!(painted.ends_with("\n1 to change\n"), "{painted:?}");
    }

    #[test]
    fn escape_sequences_of_others_are_left_out() {
        assert_eq!(paint("CoderGroup a: \u{1b}[2Jb\n"), "CoderGroup a: [2Jb\n");
    }
}
