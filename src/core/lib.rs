//! What the operator decides. Pure, total, deterministic functions over plain values: the view
//! comes in, with the time, and one decision goes out. Nothing here does I/O, awaits, logs or
//! reads a clock.

pub mod etcd;
pub mod ids;
pub mod time;
pub mod version;
