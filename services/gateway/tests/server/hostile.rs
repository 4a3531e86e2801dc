//! Bytes that no honest client sends: the caller's fault by name, and the server goes on.

use bytes::Bytes;
use futures::StreamExt;
use pando_client::{Code, proto};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use crate::fixture::{Fixture, batch, messages, reason};

/// `UpsertRequest` whose text id need not be UTF-8.
#[derive(Clone, PartialEq, prost::Message)]
struct RawUpsert {
    #[prost(string, tag = "1")]
    collection: String,
    #[prost(message, repeated, tag = "2")]
    records: Vec<RawRecord>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct RawRecord {
    #[prost(message, optional, tag = "1")]
    id: Option<RawId>,
}
#[derive(Clone, PartialEq, prost::Message)]
struct RawId {
    #[prost(bytes = "vec", tag = "2")]
    text: Vec<u8>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_id_that_is_not_utf8_is_the_callers_fault() {
    let fixture = Fixture::start().await;
    fixture.create("c", 2).await;
    let records = vec![RawRecord { id: Some(RawId { text: vec![0xff, 0xfe] }) }];
    let request = RawUpsert { collection: "c".into(), records };
    let mut grpc = Grpc::new(fixture.channel.clone());
    grpc.ready().await.unwrap();
    let codec: ProstCodec<RawUpsert, proto::UpsertResponse> = ProstCodec::default();
    let path = PathAndQuery::from_static("/pando.v1.RecordService/Upsert");
    let refused = grpc.unary(tonic::Request::new(request), path, codec).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "MALFORMED_MESSAGE"));
    assert!(refused.message().contains("records") && refused.message().contains("UTF-8"), "{refused}");
    assert_eq!(fixture.count("c").await, 0);
    fixture.stop().await;
}

/// A small generator of numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

fn flip(bytes: &Bytes, numbers: &mut Numbers) -> Bytes {
    let mut changed = bytes.to_vec();
    if !changed.is_empty() {
        let at = numbers.next(changed.len());
        changed[at] ^= 1 << numbers.next(8);
    }
    changed.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_arrow_messages_are_refused_and_the_server_goes_on() {
    let fixture = Fixture::start().await;
    fixture.create("c", 4).await;
    let whole = messages("c", &[batch(0, 20, 4)]);
    let mut numbers = Numbers(20_261_130);
    for round in 0..1500 {
        let mut damaged = whole.clone();
        let message = &mut damaged[numbers.next(2)];
        if numbers.next(4) == 0 {
            message.data_body = flip(&message.data_body, &mut numbers);
        } else {
            message.data_header = flip(&message.data_header, &mut numbers);
        }
        let (_, result) = fixture.put(futures::stream::iter(damaged)).await;
        if let Err(status) = result {
            let expected = [Code::InvalidArgument, Code::ResourceExhausted];
            assert!(expected.contains(&status.code()), "round {round}: {status:?}");
        }
    }
    // Bodies that are cut, and headers that promise what is not there.
    for cut in [0, 1, 63, 64, 65, whole[1].data_body.len() - 1] {
        let mut damaged = whole.clone();
        damaged[1].data_body = damaged[1].data_body.slice(0..cut);
        let (acks, result) = fixture.put(futures::stream::iter(damaged)).await;
        assert_eq!((acks.len(), result.unwrap_err().code()), (0, Code::InvalidArgument), "cut at {cut}");
    }
    let noise = futures::stream::iter(whole.clone()).map(|mut message| {
        message.data_header = vec![0xff; 40].into();
        message
    });
    assert_eq!(fixture.put(noise).await.1.unwrap_err().code(), Code::InvalidArgument);

    let (acks, result) = fixture.put(futures::stream::iter(whole)).await;
    result.unwrap();
    assert_eq!(acks.len(), 1);
    fixture.stop().await;
}
