//! Whether a text is a regular expression that RE2 reads, and RE2's words where it is none.

const MOST_REPEATS: u32 = 1000;
const FLAGS: &str = "imsU-";
/// Letters that mean something after a backslash.
const ESCAPES: &str = "ABCDEQSWabdfnrstvwz";
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];
/// Unicode categories by their first letter, with the second letters that they have.
const CATEGORIES: [(char, &str); 7] = [
    ('C', "cfos"),
    ('L', "lmotu"),
    ('M', "cen"),
    ('N', "dlo"),
    ('P', "cdefios"),
    ('S', "ckmo"),
    ('Z', "lps"),
];

/// Returns what is wrong with an expression. `None` where it is valid.
pub(crate) fn mistake(expression: &str) -> Option<String> {
    let mut reader = Reader { whole: expression, at: 0, open: 0 };
    reader.read().err()
}

/// Reads an expression from left to right and checks its structure.
struct Reader<'a> {
    whole: &'a str,
    at: usize,
    /// How many groups are not closed yet.
    open: usize,
}

type Checked = Result<(), String>;

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.whole[self.at..]
    }

    fn read(&mut self) -> Checked {
        let mut repeatable = false;
        // Where the last repetition began. `None` when a letter follows it.
        let mut repetition = None;
        while let Some(letter) = self.rest().chars().next() {
            let begun = self.at;
            if self.take_repetition()? {
                if !repeatable {
                    let operator = &self.whole[begun..self.at];
                    return Err(format!("missing argument to repetition operator: `{operator}`"));
                }
                if let Some(first) = repetition {
                    let operators = &self.whole[first..self.at];
                    return Err(format!("invalid nested repetition operator: `{operators}`"));
                }
                self.take('?');
                repetition = Some(begun);
                continue;
            }
            repetition = None;
            repeatable = true;
            match letter {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => {
                    self.group()?;
                    repeatable = false;
                }
                ')' if self.open == 0 => return Err(format!("unexpected ): `{}`", self.whole)),
                ')' => {
                    self.open -= 1;
                    self.at += 1;
                }
                other => {
                    self.at += other.len_utf8();
                    repeatable = other != '|';
                }
            }
        }
        if self.open > 0 { Err(format!("missing closing ): `{}`", self.whole)) } else { Ok(()) }
    }

    fn take(&mut self, letter: char) -> bool {
        let is_next = self.rest().starts_with(letter);
        self.at += if is_next { letter.len_utf8() } else { 0 };
        is_next
    }

    /// Takes a repetition. Braces around anything but numbers are ordinary letters.
    fn take_repetition(&mut self) -> Result<bool, String> {
        if ['*', '+', '?'].into_iter().any(|it| self.take(it)) {
            return Ok(true);
        }
        let Some((inside, _)) = self.rest().strip_prefix('{').and_then(|it| it.split_once('}')) else {
            return Ok(false);
        };
        let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
        let is_number = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(least) || !(most.is_empty() || is_number(most)) {
            return Ok(false);
        }
        let count = |it: &str| it.parse::<u32>().unwrap_or(u32::MAX);
        let most = if most.is_empty() { count(least) } else { count(most) };
        if count(least).max(most) > MOST_REPEATS || count(least) > most {
            return Err(format!("invalid repeat count: `{{{inside}}}`"));
        }
        self.at += inside.len() + 2;
        Ok(true)
    }

    fn escape(&mut self) -> Checked {
        let begun = self.at;
        self.at += 1;
        let Some(letter) = self.rest().chars().next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        self.at += letter.len_utf8();
        match letter {
            'p' | 'P' => self.category(begun),
            '0' | 'x' => Ok(()),
            // Everything up to `\E` is literal.
            'Q' => {
                self.at += self.rest().find("\\E").map_or_else(|| self.rest().len(), |it| it + 2);
                Ok(())
            }
            other if ESCAPES.contains(other) || !other.is_ascii_alphanumeric() => Ok(()),
            _ => Err(format!("invalid escape sequence: `{}`", &self.whole[begun..self.at])),
        }
    }

    /// Takes the rest of `\pN` or `\p{Greek}`.
    fn category(&mut self, begun: usize) -> Checked {
        let rest = self.rest();
        let name = match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}').map(|(name, _)| name),
            None => rest.chars().next().and_then(|it| rest.get(..it.len_utf8())),
        };
        let length = name.map_or(rest.len(), |it| it.len() + if rest.starts_with('{') { 2 } else { 0 });
        self.at += length;
        let name = name.unwrap_or_default().trim_start_matches('^');
        let mut letters = name.chars();
        let is_category = match (letters.next(), letters.next(), letters.next()) {
            (Some(one), None, _) => CATEGORIES.iter().any(|(first, _)| *first == one),
            (Some(one), Some(two), None) => {
                CATEGORIES.iter().any(|(first, seconds)| *first == one && seconds.contains(two))
            }
            // The scripts of Unicode are many and get more; none of them is refused.
            (Some(_), Some(_), Some(_)) => true,
            (None, _, _) => false,
        };
        if is_category {
            Ok(())
        } else {
            Err(format!("invalid character class range: `{}`", &self.whole[begun..self.at]))
        }
    }

    fn class(&mut self) -> Checked {
        let begun = self.at;
        let unclosed = || format!("missing closing ]: `{}`", &self.whole[begun..]);
        self.at += 1;
        self.take('^');
        let mut is_first = true;
        loop {
            let rest = self.rest();
            let Some(letter) = rest.chars().next() else { return Err(unclosed()) };
            if letter == ']' && !is_first {
                self.at += 1;
                return Ok(());
            }
            is_first = false;
            if let Some((name, _)) = rest.strip_prefix("[:").and_then(|it| it.split_once(":]")) {
                if !CLASSES.contains(&name.trim_start_matches('^')) {
                    return Err(format!("invalid character class range: `[:{name}:]`"));
                }
                self.at += name.len() + 4;
                continue;
            }
            let low = self.member()?;
            let range_begun = self.at;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                if self.rest().is_empty() {
                    return Err(unclosed());
                }
                let high = self.member()?;
                if high < low {
                    let from = range_begun - low.len_utf8();
                    return Err(format!("invalid character class range: `{}`", &self.whole[from..self.at]));
                }
            }
        }
    }

    /// Takes one letter of a class.
    fn member(&mut self) -> Result<char, String> {
        let letter = self.rest().chars().next().unwrap_or_default();
        if letter == '\\' {
            self.escape()?;
        } else {
            self.at += letter.len_utf8();
        }
        Ok(letter)
    }

    fn group(&mut self) -> Checked {
        let rest = self.rest();
        let named = rest.strip_prefix("(?P<").or_else(|| rest.strip_prefix("(?<"));
        if let Some(named) = named {
            let start = rest.len() - named.len();
            let is_name =
                |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
            let Some((name, _)) = named.split_once('>') else {
                return Err(format!("invalid named capture: `{rest}`"));
            };
            if !is_name(name) {
                return Err(format!("invalid named capture: `{}`", &rest[..=start + name.len()]));
            }
            self.at += start + name.len() + 1;
        } else if let Some(flags) = rest.strip_prefix("(?") {
            let length = flags.find(|it| !FLAGS.contains(it)).unwrap_or(flags.len());
            let after = flags[length..].chars().next();
            let end = 2 + length + after.map_or(0, char::len_utf8);
            if !matches!(after, Some(':' | ')')) {
                return Err(format!("invalid or unsupported Perl syntax: `{}`", &rest[..end]));
            }
            self.at += end;
            if after == Some(')') {
                return Ok(());
            }
        } else {
            self.at += 1;
        }
        self.open += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::mistake;

    #[test]
    fn valid_expressions_have_no_mistake() {
        for valid in [
            "",
            "^team-(a|b)$",
            "(?i)team",
            "(?P<n>a)",
            "a{2,3}?",
            "a{x}",
            "[(]",
            "[]a]",
            "[a-]",
            "\\p{Greek}",
        ] {
            assert_eq!(mistake(valid), None, "{valid}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let expected = [
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("x(a", "missing closing ): `x(a`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("x[b-a]", "invalid character class range: `b-a`"),
        ];
        for (expression, words) in expected {
            assert_eq!(mistake(expression).as_deref(), Some(words));
        }
    }
}
