//! Waiting for something to become true, with an account of what was seen if it does not.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{Error, Result};

/// How often [`eventually`] looks. What is looked at changes by processes that take far longer.
const INTERVAL: Duration = Duration::from_millis(100);

/// Looks until `look` returns `Ok`, at most for `limit`. Its `Err` says what it saw instead.
///
/// For one Kubernetes object use [`object`], which is told of changes.
///
/// # Errors
/// When the time is over. The text has `what` was awaited and what was seen last.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> std::result::Result<T, String>,
) -> Result<T> {
    let end = Instant::now() + limit;
    let mut seen = "nothing: the first look did not end".to_owned();
    loop {
        match timeout_at(end, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(text)) => seen = text,
            Err(_) => return Err(late(what, limit, &seen)),
        }
        if Instant::now() + INTERVAL > end {
            return Err(late(what, limit, &seen));
        }
        sleep(INTERVAL).await;
    }
}

/// Watches one object until `judge` returns `Ok`, at most for `limit`. `judge` gets `None` while
/// there is no such object; its `Err` says what it saw instead.
///
/// # Errors
/// When the time is over. The text has `what` was awaited and what was seen last.
pub async fn object<K, T>(
    api: Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    mut judge: impl FnMut(Option<&K>) -> std::result::Result<T, String>,
) -> Result<T>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let end = Instant::now() + limit;
    let mut seen = "nothing: the API server did not answer".to_owned();
    let mut changes = std::pin::pin!(watcher::watch_object(api, name).default_backoff());
    loop {
        match timeout_at(end, changes.next()).await {
            Ok(Some(Ok(object))) => match judge(object.as_ref()) {
                Ok(value) => return Ok(value),
                Err(text) => seen = text,
            },
            Ok(Some(Err(error))) => seen = error.to_string(),
            Ok(None) => return Err(Error::new(format!("{what}: the watch ended; last seen: {seen}"))),
            Err(_) => return Err(late(what, limit, &seen)),
        }
    }
}

fn late(what: &str, limit: Duration, seen: &str) -> Error {
    Error::new(format!("{what}: not within {} s; last seen: {seen}", limit.as_secs_f32()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_seen_last_is_told_when_the_time_is_over() {
        let mut looks = 0;
        let error = eventually("three voters", Duration::from_millis(250), async || {
            looks += 1;
            Err::<(), _>(format!("{looks} looks"))
        })
        .await
        .unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("three voters: not within 0.25 s; last seen: "), "{text}");
        assert!(text.ends_with(" looks"), "{text}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_does_not_outlast_the_limit() {
        let error = eventually("an answer", Duration::from_millis(50), async || {
            std::future::pending::<std::result::Result<(), String>>().await
        })
        .await
        .unwrap_err();
        assert!(error.to_string().contains("the first look did not end"), "{error}");
    }
}
