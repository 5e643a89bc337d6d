//! Rules for the names that people choose.

const LONGEST_NAME: usize = 32;
const LONGEST_GROUP_NAME: usize = 255;
const LONGEST_VERSION_NAME: usize = 64;
const LONGEST_DISPLAY_NAME: usize = 64;
const LONGEST_REAL_NAME: usize = 128;
/// What the part of an e-mail address before the `@` may have beside letters, digits and single dots.
const ATOM: &str = "!#$%&'*+/=?^_`{|}~-";
const RESERVED: [&str; 2] = ["new", "create"];

/// Whether a text may be the name of an account or an organization.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= LONGEST_NAME && !RESERVED.contains(&text) && has_name_form(text)
}

pub(crate) fn is_group_name(text: &str) -> bool {
    text.len() <= LONGEST_GROUP_NAME && !RESERVED.contains(&text) && has_name_form(text)
}

/// Whether a text may be the name of a version of a template.
pub(crate) fn is_version_name(text: &str) -> bool {
    let is_part = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LONGEST_VERSION_NAME && text.split(['_', '.', '-']).all(is_part)
}

/// Whether a text may be shown instead of a name; an empty one may.
pub(crate) fn is_display_name(text: &str) -> bool {
    // The expression of coderd knows no other white space, and its dot matches no line break.
    let is_space = |it: char| matches!(it, '\t' | '\n' | '\x0c' | '\r' | ' ');
    text.len() <= LONGEST_DISPLAY_NAME && text.trim_matches(is_space) == text && !text.contains('\n')
}

pub(crate) fn is_real_name(text: &str) -> bool {
    text.len() <= LONGEST_REAL_NAME && text.trim() == text
}

pub(crate) fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let is_letter = |it: char| it.is_ascii_alphanumeric() || !it.is_ascii();
    let is_atom = |it: &str| !it.is_empty() && it.chars().all(|it| is_letter(it) || ATOM.contains(it));
    let is_label = |it: &str| {
        let has_ends = it.starts_with(is_letter) && it.ends_with(is_letter);
        has_ends && it.chars().all(|it| is_letter(it) || it == '-')
    };
    let starts_with_letter = |it: &str| !it.starts_with(|it: char| it.is_ascii_digit());
    let top = domain.rsplit('.').next().unwrap_or_default();
    let is_domain = domain.contains('.') && domain.split('.').all(is_label) && starts_with_letter(top);
    is_domain && local.split('.').all(is_atom)
}

/// Letters and digits, with single hyphens between them.
fn has_name_form(text: &str) -> bool {
    let is_part = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.split('-').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_letters_and_digits_with_single_hyphens() {
        for name in ["a", "A1", "a-b-c", &"n".repeat(32)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a--b", "a_b", "a b", "ä", "new", "create", &"n".repeat(33)] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_group_name(&"n".repeat(255)) && !is_group_name(&"n".repeat(256)));
    }

    #[test]
    fn email_has_one_at_sign_and_a_domain() {
        assert!(is_email("a.b@c.test"));
        for email in ["", "a", "a@", "@b.test", "a@b@c.test", "a b@c.test", "a@b..test"] {
            assert!(!is_email(email), "{email}");
        }
    }
}
