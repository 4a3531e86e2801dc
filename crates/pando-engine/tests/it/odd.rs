//! Odd data: duplicates, nearly nothing, one dimension and the most, extreme norms, unhelpful orders of arrival, strange
//! ids. For every metric, in the tail, after the first checkpoint and after more: exact search, full effort and the model
//! agree; default effort is never short.

use pando_engine::api::*;

use crate::checks::*;
use crate::support::*;

const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Dot];

/// Records to write (or, without a vector, to delete) before a checkpoint.
type Step = Vec<(RecordId, Option<Vec<f32>>)>;

struct Case {
    metric: Metric,
    dim: usize,
    small_limit: u64,
    steps: Vec<Step>,
    queries: Vec<Vec<f32>>,
    ks: Vec<usize>,
    /// Least mean recall at default effort, ties counted as found.
    floor: f64,
    /// How many records are asked for by their own vector, at default effort and at full.
    own: (usize, usize),
    /// Share of them that must find themselves at default effort (l2 and cosine).
    own_floor: f64,
}

impl Case {
    fn new(metric: Metric, dim: usize, steps: Vec<Step>, queries: Vec<Vec<f32>>) -> Self {
        Self {
            metric,
            dim,
            small_limit: 100,
            steps,
            queries,
            ks: vec![1, 10],
            floor: 0.9,
            own: (300, 100),
            own_floor: 0.999,
        }
    }

    async fn run(self) {
        let engine = join(&bucket(), by_hand()).await;
        let create = CreateCollection {
            small_limit: self.small_limit,
            ..CreateCollection::new("c", self.dim as u32, self.metric)
        };
        engine.create_collection(create).await.unwrap();
        let mut model = Model::default();
        let checker = Checker::new(&engine, "c", self.metric);
        self.check(&checker, &model).await;
        for step in &self.steps {
            for batch in step.chunks(4000) {
                let upserts: Vec<_> =
                    batch.iter().filter_map(|(id, v)| Some((id.clone(), v.clone()?))).collect();
                let deletes: Vec<_> =
                    batch.iter().filter(|(_, v)| v.is_none()).map(|(id, _)| id.clone()).collect();
                engine.upsert("c", rows(self.dim, &upserts), None).await.unwrap();
                engine.delete_ids("c", deletes.clone(), None).await.unwrap();
                deletes.iter().for_each(|id| drop(model.0.remove(id)));
                model.0.extend(upserts);
            }
            self.check(&checker, &model).await;
            let outcome = engine.compact("c", quiet()).await.unwrap();
            assert_eq!(outcome.published, !step.is_empty());
            self.check(&checker, &model).await;
            checker.verified(&model).await;
        }
    }

    async fn check(&self, checker: &Checker<'_>, model: &Model) {
        checker.records(model, &[RecordId::U64(u64::MAX), RecordId::Str("nobody".into())]).await;
        for k in &self.ks {
            let recall = checker.searches(model, &self.queries, *k).await;
            assert!(recall >= self.floor, "{}: recall {recall} at k = {k}", self.metric);
        }
        if self.metric == Metric::Dot {
            return;
        }
        for (count, effort, share) in
            [(self.own.0, Effort::default(), self.own_floor), (self.own.1, Effort::RecallTarget(1.0), 1.0)]
        {
            let every = (model.0.len() / count.max(1)).max(1);
            let ids: Vec<RecordId> = model.0.keys().step_by(every).cloned().collect();
            let first = checker.self_first(model, &ids, effort).await;
            assert!(
                ids.is_empty() || first >= share,
                "{}: {first} of records find themselves, {effort:?}",
                self.metric
            );
        }
    }
}

fn id(n: usize) -> RecordId {
    RecordId::U64(n as u64)
}

/// Numbers the vectors from `first`.
fn step(first: usize, vectors: impl IntoIterator<Item = Vec<f32>>) -> Step {
    vectors.into_iter().enumerate().map(|(i, v)| (id(first + i), Some(v))).collect()
}

fn vectors(generator: &mut Generator, dim: usize, n: usize) -> Vec<Vec<f32>> {
    (0..n).map(|_| generator.vector(dim)).collect()
}

async fn copies(metric: Metric) {
    let (dim, mut generator) = (16, Generator(1));
    let copy = generator.vector(dim);
    // Every tenth record is the copy; ids go against the order of arrival, so that ties are not settled by accident.
    let mixed = |generator: &mut Generator, first: usize, n: usize| -> Step {
        (0..n)
            .map(|i| {
                let vector = if i % 10 == 3 { copy.clone() } else { generator.vector(dim) };
                (id(1_000_000 - first - i), Some(vector))
            })
            .collect()
    };
    let first = mixed(&mut generator, 0, 20_000);
    let second = mixed(&mut generator, 20_000, 1_000);
    let gone: Step = first
        .iter()
        .filter(|(_, v)| v.as_ref() == Some(&copy))
        .take(700)
        .map(|(id, _)| (id.clone(), None))
        .collect();
    let mut queries = vectors(&mut generator, dim, 39);
    queries.push(copy);
    let case = Case::new(metric, dim, vec![first, second, gone], queries);
    Case { ks: vec![20, 1000], own: (1000, 100), ..case }.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_among_many_l2() {
    copies(Metric::L2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_among_many_cosine() {
    copies(Metric::Cosine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_among_many_dot() {
    copies(Metric::Dot).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_vectors_are_equal() {
    for metric in METRICS {
        for small_limit in [50, 10_000] {
            let mut generator = Generator(2);
            let vector = generator.vector(20);
            let all = |first, n| step(first, std::iter::repeat_n(vector.clone(), n));
            let other = vectors(&mut generator, 20, 1);
            let queries = [vec![vector.clone()], vectors(&mut generator, 20, 2)].concat();
            let steps = vec![all(1000, 300), all(0, 400), step(5000, other)];
            let case = Case::new(metric, 20, steps, queries);
            Case { small_limit, ks: vec![1, 7, 299, 1000], ..case }.run().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_record_and_none() {
    for metric in METRICS {
        for small_limit in [0, 10_000] {
            let mut generator = Generator(3);
            let some = vectors(&mut generator, 5, 40);
            let everything: Step = (0..40).map(|i| (id(i), None)).collect();
            let steps = vec![
                vec![],
                step(0, some[..1].to_vec()),
                vec![(id(0), None)],
                step(0, some.clone()),
                everything,
                vec![],
                step(7, some[..1].to_vec()),
                step(7, some[1..2].to_vec()),
                vec![(id(7), None)],
            ];
            let case = Case::new(metric, 5, steps, vectors(&mut generator, 5, 2));
            Case { small_limit, ..case }.run().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_values() {
    for metric in METRICS {
        let mut generator = Generator(4);
        let two = vectors(&mut generator, 24, 2);
        let alternate = |first: usize, n: usize| step(first, (0..n).map(|i| two[i % 2].clone()));
        let some: Step = (0..500).map(|i| (id(i * 2), None)).collect();
        let steps = vec![alternate(0, 1000), alternate(1000, 50), some, alternate(0, 30)];
        let case = Case::new(metric, 24, steps, [two.clone(), vectors(&mut generator, 24, 1)].concat());
        Case { ks: vec![1, 20, 700], ..case }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_dimension() {
    for metric in METRICS {
        let mut generator = Generator(5);
        let mut some =
            |n: usize| -> Vec<Vec<f32>> { (0..n).map(|_| vec![generator.unit() * 3.0 + 1e-3]).collect() };
        let steps = vec![step(0, some(2000)), step(2000, some(200)), step(100, some(300))];
        let queries = [some(38), vec![vec![100.0], vec![-100.0]]].concat();
        Case { ks: vec![1, 10, 300], ..Case::new(metric, 1, steps, queries) }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_dimension() {
    for metric in METRICS {
        let (dim, mut generator) = (16_384, Generator(6));
        let steps =
            vec![step(0, vectors(&mut generator, dim, 60)), step(50, vectors(&mut generator, dim, 20))];
        let case = Case::new(metric, dim, steps, vectors(&mut generator, dim, 2));
        Case { small_limit: 20, own: (40, 20), ..case }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extreme_norms() {
    for metric in METRICS {
        let (dim, mut generator) = (12, Generator(7));
        let mut some = |n: usize| -> Vec<Vec<f32>> {
            (0..n)
                .map(|_| {
                    let scale = 10f32.powf(generator.unit() * 14.5);
                    generator.vector(dim).into_iter().map(|x| x * scale).collect()
                })
                .collect()
        };
        let steps = vec![step(0, some(1500)), step(1500, some(150)), step(0, some(100))];
        let queries = some(60);
        // Of 30 decades of norms, whose mean has the largest, a node's codes (relative to that mean) tell apart but the
        // last few: leaves nearer to the origin are searched in no order.
        let own_floor = if metric == Metric::L2 { 0.9 } else { 0.999 };
        Case { own_floor, ..Case::new(metric, dim, steps, queries) }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_vectors() {
    for metric in [Metric::L2, Metric::Dot] {
        let (dim, mut generator) = (18, Generator(8));
        let mut some = |n: usize| -> Vec<Vec<f32>> {
            (0..n).map(|i| if i % 3 == 0 { vec![0.0; dim] } else { generator.vector(dim) }).collect()
        };
        let steps = vec![step(0, some(1200)), step(1200, some(90)), step(300, some(60))];
        // The zero vector is a query too: under dot everything ties.
        let queries = [vec![vec![0.0; dim]], some(30)].concat();
        Case { ks: vec![1, 10, 500], ..Case::new(metric, dim, steps, queries) }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn negative_inner_products() {
    for metric in METRICS {
        let (dim, mut generator) = (20, Generator(9));
        let mut some = |n: usize, sign: f32| -> Vec<Vec<f32>> {
            (0..n)
                .map(|_| generator.vector(dim).into_iter().map(|x| sign * (x.abs() + 0.1)).collect())
                .collect()
        };
        let steps = vec![step(0, some(1200, 1.0)), step(1200, some(120, 1.0))];
        Case { ks: vec![1, 10, 100], ..Case::new(metric, dim, steps, some(40, -1.0)) }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sorted_and_drifting_arrival() {
    for metric in METRICS {
        let (dim, mut generator) = (16, Generator(10));
        let mut sorted = vectors(&mut generator, dim, 2400);
        sorted.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let steps = sorted.chunks(300).enumerate().map(|(i, part)| step(i * 300, part.to_vec())).collect();
        Case { own: (200, 50), ..Case::new(metric, dim, steps, vectors(&mut generator, dim, 40)) }
            .run()
            .await;
        // Each batch lies beside the one before; the oldest third is deleted on the way.
        let centre =
            |i: usize| (0..dim).map(|j| ((i * (j % 3 + 1)) as f32 * 0.35).sin() * 4.0).collect::<Vec<f32>>();
        let mut steps: Vec<Step> = Vec::new();
        for i in 0..8 {
            let mut part = step(
                i * 300,
                vectors(&mut generator, dim, 300)
                    .into_iter()
                    .map(|v| v.iter().zip(centre(i)).map(|(x, c)| x + c).collect()),
            );
            if i >= 5 {
                part.extend(((i - 5) * 300..(i - 4) * 300).map(|old| (id(old), None)));
            }
            steps.push(part);
        }
        let queries = (0..40)
            .map(|i| generator.vector(dim).iter().zip(centre(i % 8)).map(|(x, c)| x + c).collect())
            .collect();
        Case { own: (200, 50), ..Case::new(metric, dim, steps, queries) }.run().await;
    }
}

/// Vectors so close together, seen from the origin, that f32 hardly tells them apart: only f64 on the original ranks them.
#[tokio::test(flavor = "multi_thread")]
async fn far_away_and_close_together() {
    for metric in METRICS {
        let (dim, mut generator) = (16, Generator(11));
        let far: Vec<f32> = (0..dim).map(|_| generator.unit() * 1000.0).collect();
        let mut some = |n: usize| -> Vec<Vec<f32>> {
            (0..n)
                .map(|_| {
                    let scale =
                        if metric == Metric::Cosine { 10f32.powf(generator.unit() * 3.0) } else { 1.0 };
                    let near = generator.vector(dim);
                    far.iter().zip(near).map(|(f, x)| (f + 0.05 * x) * scale).collect()
                })
                .collect()
        };
        let steps = vec![step(0, some(1500)), step(1500, some(150)), step(0, some(100))];
        Case { ks: vec![1, 10, 100], ..Case::new(metric, dim, steps, some(40)) }.run().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_ids() {
    let long = "é".repeat(256);
    let texts = [
        "\0",
        "\0\0",
        "a\0b",
        "a",
        "a/b",
        "../..",
        "/",
        "0",
        "00",
        "18446744073709551615",
        "🌳",
        "🌳🌲",
        " ",
        "\n",
        "a b",
        "%2F",
        "İ",
        "ß",
        "ss",
        "\u{10ffff}",
        "\u{feff}",
        "NULL",
        "-1",
        long.as_str(),
    ];
    for metric in METRICS {
        let (dim, mut generator) = (10, Generator(12));
        let one = generator.vector(dim);
        let mut ids: Vec<RecordId> = texts.iter().map(|t| RecordId::Str((*t).into())).collect();
        ids.extend((0..20).map(|n| RecordId::Str(n.to_string())));
        ids.extend((0..20).chain([u64::MAX, u64::MAX - 1, 1 << 63, u64::from(u32::MAX)]).map(RecordId::U64));
        ids.extend((0..200).map(|n| RecordId::Str(format!("{:0>width$}", n, width = n % 9 + 1))));
        // Half of them share a vector: ids alone order them.
        let mut first: Step = ids
            .iter()
            .enumerate()
            .map(|(i, id)| (id.clone(), Some(if i % 2 == 0 { one.clone() } else { generator.vector(dim) })))
            .collect();
        first.reverse();
        let again: Step = ids.iter().step_by(3).map(|id| (id.clone(), Some(one.clone()))).collect();
        let gone: Step = ids.iter().step_by(4).map(|id| (id.clone(), None)).collect();
        let back: Step = ids.iter().step_by(8).map(|id| (id.clone(), Some(generator.vector(dim)))).collect();
        let queries = [vec![one.clone()], vectors(&mut generator, dim, 3)].concat();
        let case = Case::new(metric, dim, vec![first, again, gone, back], queries);
        Case { ks: vec![1, 25, 300], ..case }.run().await;
    }
}
