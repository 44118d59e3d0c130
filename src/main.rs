//! Placeholder until the composition root is written.
fn main() {}
