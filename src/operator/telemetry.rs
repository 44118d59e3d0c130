//! Owns how the operator logs: JSON lines on stderr, or text for people. Does I/O.

use tracing_subscriber::{
    Layer as _, filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// Starts logging.
///
/// # Errors
/// The filter is not one; the text says what is wrong with it.
pub(crate) fn start(filter: &str, text: bool) -> Result<(), String> {
    let filter: Targets = filter.parse().map_err(|e| format!("--log {filter:?}: {e}"))?;
    let layer = if text {
        fmt::layer().with_writer(std::io::stderr).boxed()
    } else {
        // Spans carry namespace, cluster and member, so that every line has them.
        fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .boxed()
    };
    tracing_subscriber::registry().with(filter).with(layer).try_init().map_err(|e| e.to_string())
}
