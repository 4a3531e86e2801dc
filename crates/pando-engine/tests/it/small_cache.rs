//! Caches that hold some of what a search needs: neither nothing nor everything. Answers are the same, and there are answers.

use std::time::Duration;

use pando_engine::Settings;
use pando_engine::api::*;

use crate::checks::*;
use crate::support::*;

const DIM: usize = 48;

/// It does not show the fault that it was written for (a wave's groups loaded in turns for ever: groups here are too large for
/// the cache to keep one and too few in a wave). That is shown by `pando-bench-engine search --cache-memory 44MiB` on minilm_wordnet.
#[tokio::test(flavor = "multi_thread")]
async fn searches_end_with_a_cache_of_any_size() {
    let objects = bucket();
    let mut generator = Generator(3);
    let queries: Vec<Vec<f32>> = (0..12).map(|_| generator.vector(DIM)).collect();
    let mut want: Option<Vec<Vec<(RecordId, f64)>>> = None;
    for cache_memory in [1 << 30, 0, 1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20] {
        let engine = join(&objects, Settings { cache_memory, ..by_hand() }).await;
        if want.is_none() {
            engine.create_collection(CreateCollection::new("c", DIM as u32, Metric::L2)).await.unwrap();
            let records: Vec<_> = (0..40_000).map(|id| (RecordId::U64(id), generator.vector(DIM))).collect();
            for part in records.chunks(5_000) {
                engine.upsert("c", rows(DIM, part), None).await.unwrap();
            }
            engine.compact("c", quiet()).await.unwrap();
        }
        let mut answers = Vec::new();
        for vector in &queries {
            let request = QueryRequest {
                vectors: vec![vector.clone()],
                effort: Effort::RecallTarget(0.99),
                ..query("c", &[], 10)
            };
            let answer = tokio::time::timeout(Duration::from_secs(30), engine.query(request)).await;
            let answer = answer.unwrap_or_else(|_| panic!("no answer with {cache_memory} bytes")).unwrap();
            answers.push(answer[0].matches.iter().map(|m| (m.record.id.clone(), m.distance)).collect());
        }
        assert_eq!(want.get_or_insert_with(|| answers.clone()), &answers, "{cache_memory} bytes");
        engine.shutdown().await;
    }
}
