//! How names are made short enough, and what tells values apart at a glance. Both as coder-k8s does it.

/// The first bytes of a text that is longer; no letter is cut in two.
pub(crate) fn cut(text: &str, longest: usize) -> &str {
    text.get(..text.floor_char_boundary(longest)).unwrap_or(text)
}

/// The beginning of a text that is longer than that many bytes, with a sign that there is more.
pub(crate) fn shortened(text: &str, longest: usize) -> String {
    const MORE: &str = "…";
    if text.len() <= longest {
        return text.to_owned();
    }
    format!("{}{MORE}", cut(text, longest - MORE.len()))
}

/// FNV-1a with 32 bits, as coder-k8s shortens its names. Nothing is decided by it where another answer would do harm.
pub(crate) fn fnv(parts: &[&[u8]]) -> String {
    let hash = parts
        .iter()
        .copied()
        .flatten()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_everybody_computes() {
        // From the algorithm's own list of test vectors.
        for (text, hash) in [("", "811c9dc5"), ("a", "e40c292c"), ("foobar", "bf9cf968")] {
            assert_eq!(fnv(&[text.as_bytes()]), hash);
        }
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!(cut("alpha", 9), "alpha");
        assert_eq!(cut("alpha", 2), "al");
        assert_eq!(cut("aä", 2), "a");
    }
}
