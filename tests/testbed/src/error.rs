//! The one error of this crate: a sentence for a person. No I/O.

use std::fmt::Display;

/// Something about the testbed did not work. The text says what was being done to what, and why
/// it failed; nothing in this crate reacts to the kind of an error, so there are no kinds.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Error(text.into())
    }
}

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was being done when a foreign error came up.
pub trait Context<T> {
    /// Turns the error into "`doing`: error".
    fn context(self, doing: impl Display) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl Display) -> Result<T> {
        self.map_err(|e| Error(format!("{doing}: {e}")))
    }
}
