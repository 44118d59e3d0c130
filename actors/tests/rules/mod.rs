//! The tests, by what they are about.

mod absence;
mod budget;
mod changes;
mod chaos;
mod cost;
mod faults;
mod gate;
mod intent;
mod isolation;
mod levels;
mod lifecycle;
mod lost_node;
mod status;
mod thrown_out;
