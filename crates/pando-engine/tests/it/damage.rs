//! Every object of a collection, flipped, cut and removed: what is answered is right, or an error that says which kind of object
//! is damaged; memory stays bounded. `verify` finds every flip in what a root is made of.
//!
//! CI takes samples. `PANDO_DAMAGE=all` flips every byte and cuts at every length of a small collection, and takes many more
//! samples of the large one; it runs for hours, and `PANDO_DAMAGE_PART=3/8` runs an eighth of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pando_engine::api::*;
use pando_engine::rootio::RootIo;
use pando_engine::{Engine, Error, ErrorKind, Result};
use pando_format::{CollectionRecord, Stored};
use pando_store::{Key, ObjectKind};

use crate::checks::*;
use crate::support::*;

/// Sizes of a collection.
struct Shape {
    dim: usize,
    small_limit: u64,
    /// Ids of the first checkpoint, of the second and of the tail.
    first: std::ops::Range<u64>,
    second: std::ops::Range<u64>,
    tail: std::ops::Range<u64>,
    large_tail: std::ops::Range<u64>,
    /// Ids below this are deleted in the second checkpoint, some more in the tail.
    gone: u64,
    gone_in_tail: std::ops::Range<u64>,
}

/// Vectors so long that a few records make an entry that has its body outside.
const LARGE: Shape = Shape {
    dim: 512,
    small_limit: 40,
    first: 0..160,
    second: 150..170,
    tail: 166..175,
    large_tail: 2000..2140,
    gone: 14,
    gone_in_tail: 162..166,
};

/// So small that every byte of it can be damaged.
const SMALL: Shape = Shape {
    dim: 4,
    small_limit: 20,
    first: 0..40,
    second: 36..44,
    tail: 43..46,
    large_tail: 2000..2004,
    gone: 4,
    gone_in_tail: 40..42,
};

/// Bytes that opening a damaged collection and asking it everything may take beyond what the undamaged one does.
const MEMORY: usize = 64 << 20;

/// Everything that can be asked, with what came back.
#[derive(Debug, PartialEq)]
struct Answers {
    count: Result<u64, String>,
    scan: Result<Vec<Record>, String>,
    fetch: Result<Vec<Option<Record>>, String>,
    exact: Result<Vec<Vec<(RecordId, f64)>>, String>,
    full: Result<Vec<Vec<(RecordId, f64)>>, String>,
    default: Result<Vec<Vec<(RecordId, f64)>>, String>,
    then: Result<Vec<Vec<(RecordId, f64)>>, String>,
    roots: Result<Vec<RootId>, String>,
}

struct Sample {
    queries: Vec<Vec<f32>>,
    ids: Vec<RecordId>,
    first_root: Option<RootId>,
}

/// An error has to be DATA_LOSS and name one of these.
fn judged<T>(result: Result<T>, words: &[&str]) -> Result<T, String> {
    result.map_err(|error: Error| {
        assert_eq!(error.kind, ErrorKind::DataLoss, "{error:?}");
        assert!(words.iter().any(|word| error.message.contains(word)), "{words:?} in {error:?}");
        // Nothing of keys, hashes or hosts (law 10).
        let inside = |run: &str| run.len() > 15;
        let shown = error.message.split(|c: char| !c.is_ascii_hexdigit()).any(inside);
        assert!(!shown && !error.message.contains('/'), "the inside is shown: {error:?}");
        error.message
    })
}

/// Whether an older root was collected or lost nobody can tell.
fn judged_at<T>(result: Result<T>, at: &At, words: &[&str]) -> Result<T, String> {
    match result {
        Err(error) if matches!(at, At::Root(_)) && error.reason == "ROOT_EXPIRED" => Err(error.message),
        result => judged(result, words),
    }
}

fn at_root(sample: &Sample, root: RootId) -> QueryRequest {
    QueryRequest { vectors: sample.queries.clone(), at: At::Root(root), ..query("c", &[], 10) }
}

async fn ask(engine: &Engine, sample: &Sample, words: &[&str]) -> Answers {
    let all = Include { vector: true, attributes: IncludeAttributes::All };
    let (strong, now) = (Consistency::Strong, At::Now);
    let search = async |exact, effort| {
        let request = QueryRequest {
            vectors: sample.queries.clone(),
            exact,
            effort,
            at: now.clone(),
            ..query("c", &[], 10)
        };
        let answers = judged(engine.query(request).await, words)?;
        Ok(answers.iter().map(found).collect::<Vec<_>>())
    };
    let scan = async {
        let pages = engine.scan("c", all.clone(), strong, now.clone(), 500).await?;
        let pages: Vec<ScanPage> = pages.try_collect().await?;
        Ok(pages.into_iter().flat_map(|page| page.records).collect::<Vec<_>>())
    };
    let fetch = engine.fetch("c", sample.ids.clone(), all.clone(), strong, now.clone());
    let roots = engine.list_roots("c");
    Answers {
        count: judged(engine.count("c", strong, now.clone()).await.map(|c| c.count), words),
        scan: judged(scan.await, words),
        fetch: judged(fetch.await.map(|f| f.records), words),
        exact: search(true, Effort::default()).await,
        full: search(false, Effort::RecallTarget(1.0)).await,
        default: search(false, Effort::default()).await,
        then: match sample.first_root {
            Some(root) => judged_at(engine.query(at_root(sample, root)).await, &At::Root(root), words)
                .map(|answers| answers.iter().map(found).collect()),
            None => Ok(Vec::new()),
        },
        // A root whose manifest cannot be read is listed as one that cannot be read.
        roots: judged(roots.await.map(|r| r.iter().map(|r| r.root).collect()), words),
    }
}

/// Each answer is the right one or an error (which was looked at already).
fn right_or_error(got: &Answers, want: &Answers, what: &str) {
    fn check<T: PartialEq>(got: &Result<T, String>, want: &Result<T, String>, what: &str, which: &str) {
        assert!(got.is_err() || got == want, "{what}: a wrong answer to {which}");
    }
    check(&got.count, &want.count, what, "count");
    check(&got.scan, &want.scan, what, "scan");
    check(&got.fetch, &want.fetch, what, "fetch");
    check(&got.exact, &want.exact, what, "exact search");
    check(&got.full, &want.full, what, "full effort");
    check(&got.default, &want.default, what, "default effort");
    check(&got.then, &want.then, what, "the first root");
    check(&got.roots, &want.roots, what, "the list of roots");
}

/// Words that an error about such an object may use: the object's own, or what is inside it.
fn words(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        ObjectKind::Name => &["collection name"],
        ObjectKind::Record => &["collection record"],
        ObjectKind::Log => &["log entry"],
        ObjectKind::Batch => &["log batch", "log entry"],
        ObjectKind::Plan => &["checkpoint plan"],
        ObjectKind::Head => &["head"],
        ObjectKind::Root => &["root"],
        ObjectKind::Segment => &["segment"],
        ObjectKind::Pack => &["pack", "block", "node", "segment"],
        _ => &[],
    }
}

/// Two checkpoints (the second with a delta, dead rows and a second id run) and a tail with a large body.
async fn build(objects: &Arc<dyn ObjectStore>, shape: &Shape) -> (RootId, RootId) {
    let engine = join(objects, by_hand()).await;
    let create = CreateCollection {
        small_limit: shape.small_limit,
        ..CreateCollection::new("c", shape.dim as u32, Metric::Cosine)
    };
    engine.create_collection(create).await.unwrap();
    let mut generator = Generator(60);
    let mut batch = |ids: std::ops::Range<u64>| -> Vec<_> {
        let id =
            |n: u64| if n.is_multiple_of(5) { RecordId::Str(format!("text {n}")) } else { RecordId::U64(n) };
        ids.map(|n| (id(n), generator.vector(shape.dim))).collect::<Vec<_>>()
    };
    engine.upsert("c", rows(shape.dim, &batch(shape.first.clone())), Some("a key".into())).await.unwrap();
    let first = engine.compact("c", quiet()).await.unwrap().root.unwrap();
    engine.upsert("c", rows(shape.dim, &batch(shape.second.clone())), Some("another".into())).await.unwrap();
    engine.delete_ids("c", (0..shape.gone).map(RecordId::U64).collect(), None).await.unwrap();
    let second = engine.compact("c", quiet()).await.unwrap().root.unwrap();
    engine.upsert("c", rows(shape.dim, &batch(shape.tail.clone())), Some("a third".into())).await.unwrap();
    engine.upsert("c", rows(shape.dim, &batch(shape.large_tail.clone())), None).await.unwrap();
    engine.delete_ids("c", shape.gone_in_tail.clone().map(RecordId::U64).collect(), None).await.unwrap();
    engine.shutdown().await;
    (first, second)
}

async fn everything(objects: &Arc<dyn ObjectStore>) -> BTreeMap<String, bytes::Bytes> {
    let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
    let mut all = BTreeMap::new();
    for object in listed {
        let bytes = objects.get(&object.location).await.unwrap().bytes().await.unwrap();
        all.insert(object.location.to_string(), bytes);
    }
    all
}

/// Packs, segments and the manifest of a root.
async fn reached(objects: &Arc<dyn ObjectStore>, root: RootId) -> BTreeSet<String> {
    let engine = join(objects, by_hand()).await;
    let uuid = engine.describe("c").await.unwrap().uuid;
    let store = engine.environment().store.clone();
    let record = CollectionRecord::decode(&store.get(&Key::Record { uuid }).await.unwrap()).unwrap();
    let depth = engine.list_roots("c").await.unwrap().iter().find(|r| r.root == root).unwrap().depth;
    let io = RootIo::new(store, Arc::new(record));
    let (manifest, _) = io.manifest(depth, &root).await.unwrap();
    let mut keys = BTreeSet::from([io.root_key(depth, &root).path()]);
    keys.extend(manifest.packs.iter().map(|pack| io.pack_key(&pack.object).path()));
    keys.extend(manifest.segments.iter().map(|segment| io.segment_key(&segment.object).path()));
    engine.shutdown().await;
    keys
}

#[derive(Debug)]
enum Harm {
    Flip(usize, u8),
    Cut(usize),
    Gone,
}

/// How much of each object is damaged.
#[derive(Clone, Copy)]
enum Extent {
    /// A few fixed places, and so many by chance.
    Some(usize),
    /// About one byte in so many, and as many cuts.
    OneIn(usize),
    /// The whole of it.
    All,
}

fn harms(len: usize, extent: Extent, generator: &mut Generator) -> Vec<Harm> {
    let (at, cuts): (BTreeSet<usize>, BTreeSet<usize>) = match extent {
        Extent::Some(samples) => {
            let mut at = BTreeSet::from([5, len - 1]);
            at.extend((0..samples).map(|_| generator.below(len as u64) as usize));
            let cut = generator.below(len as u64) as usize;
            (at, BTreeSet::from([cut, len - 1]).into_iter().take(if samples > 1 { 2 } else { 1 }).collect())
        }
        Extent::OneIn(step) => {
            let mut places = || -> BTreeSet<usize> {
                (0..len).step_by(step).map(|at| at + generator.below(step as u64) as usize).collect()
            };
            (places(), places())
        }
        Extent::All => ((0..len).collect(), (0..len).collect()),
    };
    let flips = at.into_iter().filter(|at| *at < len).map(|at| Harm::Flip(at, 1 << generator.below(8)));
    let mut harms: Vec<Harm> = flips.collect();
    harms.extend(cuts.into_iter().filter(|cut| *cut < len).map(Harm::Cut));
    harms
}

/// The share of the harms that this process does: `PANDO_DAMAGE_PART=part/parts`.
fn part() -> (usize, usize) {
    let Ok(text) = std::env::var("PANDO_DAMAGE_PART") else { return (0, 1) };
    let (part, parts) = text.split_once('/').expect("part/parts");
    (part.parse().expect("a number"), parts.parse().expect("a number"))
}

async fn damaged(shape: &Shape, extent: Extent, expected: &[ObjectKind]) {
    let objects = bucket();
    let (first, second) = build(&objects, shape).await;
    let all = everything(&objects).await;
    let (of_first, of_second) = (reached(&objects, first).await, reached(&objects, second).await);
    let mut generator = Generator(61);
    let sample = Sample {
        queries: (0..2).map(|_| generator.vector(shape.dim)).collect(),
        ids: (0..180)
            .step_by(7)
            .map(RecordId::U64)
            .chain((0..2140).step_by(35).map(|n| RecordId::Str(format!("text {n}"))))
            .collect(),
        first_root: Some(first),
    };
    let engine = join(&objects, by_hand()).await;
    // One process a test, as nextest has it, or memory is not this test's alone.
    let measured = std::env::var_os("NEXTEST").is_some();
    crate::ALLOCATOR.reset_peak_usage();
    let want = ask(&engine, &sample, &[]).await;
    engine.shutdown().await;
    let usual = crate::ALLOCATOR.peak_usage();
    assert!(want.scan.as_ref().is_ok_and(|all| all.len() > 40));
    let (mut kinds, mut count) = (BTreeSet::new(), 0);
    let (part, parts) = part();
    for (path, bytes) in &all {
        let kind = Key::parse(path).expect("one of ours").kind();
        kinds.insert(kind);
        let mut harms = harms(bytes.len(), extent, &mut generator);
        if !matches!(kind, ObjectKind::Name | ObjectKind::Head | ObjectKind::Log) {
            // Numbered objects that are gone were never there, as far as anybody can tell, unless a later one exists.
            harms.push(Harm::Gone);
        }
        for harm in harms {
            count += 1;
            // Without memory each read meets storage itself, with little blocks are read in parts; one sample in three has
            // room for everything.
            let cache_memory = [0, 200 << 10, 64 << 20][generator.below(3) as usize];
            if count % parts != part {
                continue;
            }
            let at = Path::from(path.as_str());
            let mut copy = bytes.to_vec();
            match harm {
                Harm::Flip(at, bit) => copy[at] ^= bit,
                Harm::Cut(len) => copy.truncate(len),
                Harm::Gone => {}
            }
            match harm {
                Harm::Gone => objects.delete(&at).await.unwrap(),
                _ => drop(objects.put(&at, copy.into()).await.unwrap()),
            }
            let what = format!("{kind:?} of {} bytes, {harm:?}", bytes.len());
            crate::ALLOCATOR.reset_peak_usage();
            let engine = join(&objects, pando_engine::Settings { cache_memory, ..by_hand() }).await;
            let got = ask(&engine, &sample, words(kind)).await;
            right_or_error(&got, &want, &what);
            for (root, reached) in [(At::Now, &of_second), (At::Root(first), &of_first)] {
                let report = judged_at(engine.verify("c", root.clone(), quiet()).await, &root, words(kind));
                if let Ok(report) = report {
                    assert_eq!(report.ok, report.problems.is_empty());
                    assert_eq!(
                        report.ok,
                        !reached.contains(path),
                        "{what}: verify of {root:?}: {:?}",
                        report.problems
                    );
                }
            }
            engine.shutdown().await;
            let taken = crate::ALLOCATOR.peak_usage();
            assert!(!measured || taken < usual + MEMORY, "{what}: {taken} bytes of memory, usually {usual}");
            objects.put(&at, bytes.clone().into()).await.unwrap();
        }
    }
    assert!(kinds.iter().eq(expected), "every kind of object was damaged: {kinds:?}");
    eprintln!("{count} harms");
}

fn everywhere() -> bool {
    std::env::var("PANDO_DAMAGE").is_ok_and(|text| text == "all")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_damaged() {
    let extent = Extent::Some(if everywhere() { 400 } else { 1 });
    let expected = [
        ObjectKind::Name,
        ObjectKind::Record,
        ObjectKind::Log,
        ObjectKind::Batch,
        ObjectKind::Plan,
        ObjectKind::Head,
        ObjectKind::Segment,
        ObjectKind::Pack,
        ObjectKind::Root,
    ];
    damaged(&LARGE, extent, &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_damaged() {
    let extent = if everywhere() { Extent::All } else { Extent::OneIn(97) };
    let expected = [
        ObjectKind::Name,
        ObjectKind::Record,
        ObjectKind::Log,
        ObjectKind::Plan,
        ObjectKind::Head,
        ObjectKind::Segment,
        ObjectKind::Pack,
        ObjectKind::Root,
    ];
    damaged(&SMALL, extent, &expected).await;
}

/// A log entry that is gone while later ones are there: nobody answers as if the log ended before it, and nobody writes in
/// its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_log() {
    let objects = bucket();
    build(&objects, &LARGE).await;
    let logs: Vec<String> =
        everything(&objects).await.into_keys().filter(|path| path.contains("/log/")).collect();
    // Of six entries three are the tail's; the last one's absence cannot be seen.
    for missing in &logs[3..5] {
        let bytes = objects.get(&Path::from(missing.as_str())).await.unwrap().bytes().await.unwrap();
        objects.delete(&Path::from(missing.as_str())).await.unwrap();
        let engine = join(&objects, by_hand()).await;
        let error = engine.count("c", Consistency::Strong, At::Now).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::DataLoss, "{error:?}");
        assert!(error.message.contains("log entry"), "{error:?}");
        let error = engine.delete_ids("c", vec![RecordId::U64(61)], None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::DataLoss, "{error:?}");
        assert!(
            objects.head(&Path::from(missing.as_str())).await.is_err(),
            "nothing is written in its place"
        );
        objects.put(&Path::from(missing.as_str()), bytes.into()).await.unwrap();
        let engine = join(&objects, by_hand()).await;
        assert!(engine.count("c", Consistency::Strong, At::Now).await.unwrap().count > 250);
    }
}

/// A checkpoint over damaged parents stops with an error and publishes nothing; mended, it goes through.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_of_damaged_parents() {
    let objects = bucket();
    let (_, second) = build(&objects, &LARGE).await;
    let all = everything(&objects).await;
    let mut generator = Generator(62);
    let mut stopped = 0;
    for path in reached(&objects, second).await {
        let bytes = &all[&path];
        let kind = Key::parse(&path).unwrap().kind();
        for _ in 0..3 {
            let place = generator.below(bytes.len() as u64) as usize;
            let mut copy = bytes.to_vec();
            copy[place] ^= 1 << generator.below(8);
            // Everything starts from the same store each time.
            let objects = bucket();
            for (path, bytes) in &all {
                objects.put(&Path::from(path.as_str()), bytes.clone().into()).await.unwrap();
            }
            objects.put(&Path::from(path.as_str()), copy.into()).await.unwrap();
            let engine = join(&objects, by_hand()).await;
            let outcome = judged(engine.compact("c", quiet()).await, words(kind));
            engine.shutdown().await;
            objects.put(&Path::from(path.as_str()), bytes.clone().into()).await.unwrap();
            let engine = join(&objects, by_hand()).await;
            stopped += usize::from(outcome.is_err());
            if outcome.is_err() {
                assert_eq!(
                    engine.describe("c").await.unwrap().generation,
                    2,
                    "{kind:?}: nothing is published"
                );
                engine.compact("c", quiet()).await.unwrap();
            }
            let report = engine.verify("c", At::Now, quiet()).await.unwrap();
            assert!(report.ok, "{kind:?} at {place}: {:?}", report.problems);
            engine.shutdown().await;
        }
    }
    assert!(stopped > 3, "{stopped} checkpoints met the damage");
}
