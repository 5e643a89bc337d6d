//! How strong a password has to be: 52 bits by an estimate that ignores repetitions and well-known sequences.

const LEAST_BITS: f64 = 52.0;
const LONGEST: usize = 64;

const SPECIAL: [&str; 3] = ["!@$&*", "_-., ", "\"#%'()+/:;<=>?[\\]^{|}~"];
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const SEQUENCES: [&str; 5] = [DIGITS, "qwertyuiop", "asdfghjkl", "zxcvbnm", LOWER];

/// Returns why a password is refused. `None` where it is strong enough.
pub(crate) fn weakness(password: &str) -> Option<String> {
    if bits(password) < LEAST_BITS {
        return Some(advice(password));
    }
    (password.len() > LONGEST).then(|| format!("password must be no more than {LONGEST} characters"))
}

fn has_any(password: &str, class: &str) -> bool {
    password.chars().any(|it| class.contains(it))
}

fn advice(password: &str) -> String {
    let mut advice = Vec::new();
    if SPECIAL.iter().any(|class| !has_any(password, class)) {
        advice.push("including more special characters");
    }
    let classes =
        [(LOWER, "using lowercase letters"), (UPPER, "using uppercase letters"), (DIGITS, "using numbers")];
    advice.extend(classes.iter().filter(|(class, _)| !has_any(password, class)).map(|(_, words)| *words));
    match advice.as_slice() {
        [] => "insecure password, try using a longer password".to_owned(),
        advice => format!("insecure password, try {} or using a longer password", advice.join(", ")),
    }
}

fn bits(password: &str) -> f64 {
    let classes = [SPECIAL[0], SPECIAL[1], SPECIAL[2], LOWER, UPPER, DIGITS];
    let known: usize = classes.iter().filter(|class| has_any(password, class)).map(|it| it.len()).sum();
    let mut others: Vec<char> =
        password.chars().filter(|it| !classes.iter().any(|class| class.contains(*it))).collect();
    others.sort_unstable();
    others.dedup();
    let base = u32::try_from(known + others.len()).unwrap_or(u32::MAX);
    let length = u32::try_from(counted(password)).unwrap_or(u32::MAX);
    if base == 0 { 0.0 } else { f64::from(base).log2() * f64::from(length) }
}

/// The bytes that count: of a repetition and of a sequence, in either direction, only the first two.
fn counted(password: &str) -> usize {
    let mut kept = Vec::new();
    for letter in password.chars() {
        if !matches!(kept.as_slice(), [.., one, other] if *one == letter && *other == letter) {
            kept.push(letter);
        }
    }
    for sequence in SEQUENCES {
        let forward: Vec<char> = sequence.chars().collect();
        let backward: Vec<char> = sequence.chars().rev().collect();
        kept = without_sequence(kept, &forward);
        kept = without_sequence(kept, &backward);
    }
    kept.iter().map(|it| it.len_utf8()).sum()
}

fn without_sequence(letters: Vec<char>, sequence: &[char]) -> Vec<char> {
    let position = |it: char| sequence.iter().position(|letter| *letter == it);
    let mut kept = Vec::new();
    let mut run = 0;
    let mut last = None;
    for letter in letters {
        let at = position(letter);
        let follows = matches!((last, at), (Some(last), Some(at)) if at == last + 1);
        run = if at.is_none() {
            0
        } else if follows {
            run + 1
        } else {
            1
        };
        last = at;
        if run <= 2 {
            kept.push(letter);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strong_password_is_long_or_mixed() {
        assert_eq!(weakness("SomeSecurePassword!"), None);
        for weak in ["", "hunter2", "aaaaaaaaaaaaaaaaaaaaaa", "abcdefghijklmnopqrstuvwxyz"] {
            assert!(weakness(weak).is_some(), "{weak}");
        }
        assert!(weakness(&"Long-enough-1!".repeat(5)).unwrap().contains("no more than 64"));
    }
}
