//! The tests, by what they are about.

mod absence;
mod changes;
mod chaos;
mod faults;
mod gate;
mod intent;
mod isolation;
mod levels;
mod lifecycle;
mod status;
