//! Broadcast channels as streams.

use futures::Stream;
use tokio::sync::broadcast;

/// What a channel carries from now on; `None` where the receiver was too slow and missed something.
pub(crate) fn received<T: Clone + Send + 'static>(
    channel: broadcast::Receiver<T>,
) -> impl Stream<Item = Option<T>> + Send + 'static {
    futures::stream::unfold(channel, |mut channel| async {
        match channel.recv().await {
            Ok(value) => Some((Some(value), channel)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((None, channel)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    })
}
