//! Long work as a stream: progress while it runs, its result as the last message.

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt};
use pando_engine::ProgressSink;
use pando_engine::api::Progress;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::errors::internal;

/// What happens to the work when the caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLeft {
    /// It goes on.
    GoOn,
    /// It stops.
    Stop,
}

/// Starts `work` in a task of its own and streams its news. Progress that the caller is too slow for is dropped.
pub fn stream<M, W>(
    left: WhenLeft,
    message: impl Fn(Progress) -> M + Send + Sync + 'static,
    work: impl FnOnce(ProgressSink) -> W,
) -> BoxStream<'static, Result<M, Status>>
where
    M: Send + 'static,
    W: Future<Output = Result<M, Status>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(16);
    let news = sender.clone();
    let sink: ProgressSink = Arc::new(move |progress| {
        let _ = news.try_send(Ok(message(progress)));
    });
    let work = work(sink);
    let task = tokio::spawn(work);
    let stop = task.abort_handle();
    tokio::spawn(async move {
        let mut task = task;
        let result = tokio::select! {
            result = &mut task => result,
            () = sender.closed(), if left == WhenLeft::Stop => {
                stop.abort();
                return;
            }
        };
        let result = result.unwrap_or_else(|error| Err(internal(format!("long work failed: {error}"))));
        let _ = sender.send(result).await;
    });
    ReceiverStream::new(receiver).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_the_work_ends_its_stream_with_an_error() {
        let mut stream = stream(
            WhenLeft::Stop,
            |progress| progress.done,
            |sink| async move {
                sink(Progress { stage: "work".into(), done: 7, total: 9 });
                tokio::task::yield_now().await;
                if true {
                    panic!("a test's panic");
                }
                Ok(0)
            },
        );
        assert_eq!(stream.next().await.unwrap().unwrap(), 7);
        assert_eq!(stream.next().await.unwrap().unwrap_err().code(), tonic::Code::Internal);
        assert!(stream.next().await.is_none());
    }
}
