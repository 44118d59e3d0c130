//! What the operator decides: pure functions, no I/O.
