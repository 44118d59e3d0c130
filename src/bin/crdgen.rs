//! Writes the CRDs.
fn main() {}
