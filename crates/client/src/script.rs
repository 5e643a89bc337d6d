//! A transport for tests that answers from a script and remembers what it was asked.
