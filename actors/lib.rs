//! The actors: the only user of ractor.
