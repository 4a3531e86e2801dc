//! Arrow Flight DoPut, with the raw messages in the test's hands.

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures::{Stream, StreamExt, TryStreamExt};
use tonic::Status;
use tonic::transport::Channel;

use crate::server::Server;

/// A Flight client.
pub async fn connect(server: &Server) -> FlightServiceClient<Channel> {
    let channel = Channel::from_shared(server.url()).expect("a URL").connect().await.expect("a connection");
    FlightServiceClient::new(channel)
}

/// The messages that carry `batches` to `collection`, one message a batch after the schema.
pub async fn messages(collection: &str, batches: Vec<RecordBatch>) -> Vec<FlightData> {
    let descriptor = FlightDescriptor::new_path(vec![collection.to_owned()]);
    let encoder = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .with_max_flight_data_size(256 << 20)
        .build(futures::stream::iter(batches.into_iter().map(Ok)));
    encoder.try_collect().await.expect("batches that can be encoded")
}

/// Sends messages and gives each acknowledgement to `acked` as it comes; ends when the server ends the stream.
pub async fn put(
    client: &mut FlightServiceClient<Channel>,
    messages: impl Stream<Item = FlightData> + Send + 'static,
    mut acked: impl FnMut(&PutResult),
) -> Result<usize, Status> {
    let mut answers = client.do_put(messages).await?.into_inner();
    let mut n = 0;
    while let Some(answer) = answers.next().await {
        acked(&answer?);
        n += 1;
    }
    Ok(n)
}

/// Loads batches and returns the number of acknowledgements.
pub async fn load(server: &Server, collection: &str, batches: Vec<RecordBatch>) -> Result<usize, Status> {
    let messages = messages(collection, batches).await;
    put(&mut connect(server).await, futures::stream::iter(messages), |_| ()).await
}
