//! One run from its seed to its ending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use pando_coordination::{Coordinator, InProcess};
use pando_engine::Engine;
use pando_engine::api::*;

use crate::client::{Client, NAME, Reader, Verdict, World};
use crate::clock::SimClock;
use crate::history::History;
use crate::keeper::Keeper;
use crate::names::Names;
use crate::node::Node;
use crate::random::Dice;
use crate::storage::Storage;
use crate::weather::Weather;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// What was wrong.
    pub wrong: Vec<String>,
    /// Hash of every request, its fate and its time, of every death, and of the last state.
    pub trace: [u8; 32],
    /// Requests to storage.
    pub requests: u64,
    /// Calls that were acknowledged, refused, left unknown.
    pub told: [usize; 3],
    /// Generation of the last head, live records, entries of the log.
    pub generation: u64,
    /// Live records at the end.
    pub records: u64,
    /// Entries of the log.
    pub entries: u64,
    /// Deaths of processes.
    pub deaths: u64,
    /// Names of roots that held, and that came too late.
    pub named: [u64; 2],
    /// Simulated milliseconds.
    pub time: u64,
    /// Faults by name.
    pub happened: BTreeMap<&'static str, u64>,
}

/// Longer than any delay of storage.
const AFTER_THE_LAST: Duration = Duration::from_secs(600);
/// A run that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(8_000);

/// Runs a seed. `show` prints every request.
pub fn simulate(seed: u64, show: bool) -> Ending {
    let strayed = Arc::new(AtomicBool::new(false));
    let stray = strayed.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        // The only threads that this runtime starts are those of `spawn_blocking`, which the seed does not order.
        .on_thread_start(move || stray.store(true, Ordering::Relaxed))
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread");
    let mut out = runtime.block_on(run(seed, show));
    if strayed.load(Ordering::Relaxed) {
        out.wrong.push("something ran on a thread that the seed does not order".into());
    }
    // Requests that were never answered.
    runtime.shutdown_background();
    out
}

async fn run(seed: u64, show: bool) -> Ending {
    let clock = SimClock::start();
    let weather = Arc::new(Weather::of(seed));
    let storage = Storage::new(weather.faults.clone(), seed, clock, show);
    if show {
        eprintln!("{weather:#?}");
    }
    let shared: Arc<dyn Coordinator> = Arc::new(InProcess::new(Arc::new(clock)));
    let node = |n| Node::new(n, seed, storage.clone(), clock, weather.clone(), &shared);
    let nodes: Vec<Node> = (0..weather.nodes).map(node).collect();
    let mut ending = Ending {
        wrong: Vec::new(),
        trace: [0; 32],
        requests: 0,
        told: [0; 3],
        generation: 0,
        records: 0,
        entries: 0,
        deaths: 0,
        named: [0; 2],
        time: 0,
        happened: BTreeMap::new(),
    };
    let story = story(seed, &weather, &storage, clock, nodes.clone(), &mut ending);
    match tokio::time::timeout(LONGEST, story).await {
        Ok(Ok(())) => {}
        Ok(Err(wrong)) => ending.wrong.push(wrong),
        Err(_) => {
            let calls: Vec<String> = nodes.iter().flat_map(Node::unanswered).collect();
            ending.wrong.push(format!("the run is stuck; without an answer: {calls:?}"));
        }
    }
    ending.wrong.extend(storage.violations());
    (ending.requests, ending.trace) = storage.trace();
    ending.time = clock.elapsed().as_millis() as u64;
    ending.happened = storage.happened();
    ending
}

async fn story(
    seed: u64,
    weather: &Arc<Weather>,
    storage: &Storage,
    clock: SimClock,
    nodes: Vec<Node>,
    ending: &mut Ending,
) -> Verdict {
    for node in &nodes {
        node.start_at_last().await;
    }
    let uuid = create(&nodes[0], weather).await?;
    let history = History::new(storage.clone(), uuid, weather.dim);
    let calls = Arc::new(AtomicI64::new(1));
    let world = World {
        nodes: nodes.clone(),
        history: history.clone(),
        weather: weather.clone(),
        calls,
        loose: Default::default(),
    };
    let deaths = Arc::new(AtomicU64::new(0));
    let killer = tokio::spawn(kill(nodes.clone(), Dice::new(seed, 3), weather.deaths, deaths.clone()));
    let clients: Vec<_> = (0..weather.clients)
        .map(|n| tokio::spawn(Client { world: world.clone(), dice: Dice::new(seed, 10 + n) }.run()))
        .collect();
    let names = tokio::spawn(Names::new(world.clone(), Dice::new(seed, 5)).run());
    let store = Keeper::store(storage, clock).map_err(|e| format!("a store: {e}"))?;
    let keeper = tokio::spawn(Keeper::new(world.clone(), Dice::new(seed, 6), store, uuid).run());
    let mut wrong = Ok(());
    for client in clients {
        let ended = client.await.unwrap_or_else(|e| Err(format!("a client: {e}")));
        wrong = wrong.and(ended);
    }
    let names = names.await.unwrap_or_else(|e| Err(format!("a client: {e}")));
    let keeper = keeper.await.unwrap_or_else(|e| Err(format!("a client: {e}")));
    killer.abort();
    ending.deaths = deaths.load(Ordering::Relaxed);
    wrong?;
    // Calm: what is on its way arrives, everybody is started again and answers.
    storage.heal();
    tokio::time::sleep(AFTER_THE_LAST).await;
    let dice = Dice::new(seed, 4);
    for node in &nodes {
        node.kill().await;
        node.start_at_last().await;
    }
    names?.settle().await?;
    ending.named = keeper?.settle().await?;
    ending.entries = history.log_end()?;
    ending.told = history.check_all()?;
    for node in &nodes {
        check(node, &history, weather, &dice, "after the storm").await?;
    }
    let engine = nodes[0].engine().ok_or("a process is not running")?;
    let compacted = compact(&nodes[0]).await?;
    ending.generation = compacted.generation;
    for node in &nodes {
        check(node, &history, weather, &dice, "after the last checkpoint").await?;
        verify(node, At::Now).await?;
    }
    // Every root that can be read is what the log was at its position.
    let roots = within(engine.list_roots(NAME)).await?;
    for root in roots.iter().filter(|root| root.readable).take(6) {
        let at = At::Root(root.root);
        let reader =
            Reader { engine: &engine, history: &history, weather, at, consistency: Consistency::Strong };
        let read = match reader.all(&dice).await {
            Ok(()) => verify(&nodes[0], At::Root(root.root)).await,
            wrong => wrong,
        };
        match read {
            // Collected since it was listed.
            Err(wrong) if wrong.contains("ROOT_EXPIRED") => {}
            read => read.map_err(|e| format!("root of generation {}: {e}", root.generation))?,
        }
    }
    ending.records = history.at(ending.entries)?.len() as u64;
    if history.log_end()? != ending.entries {
        return Err("the log grew without a write".into());
    }
    storage.note(&format!("end: {} records, {:?}", ending.records, compacted.root));
    Ok(())
}

async fn within<T>(work: impl Future<Output = pando_engine::Result<T>>) -> Verdict<T> {
    work.await.map_err(|error| format!("in calm weather: {error:?}"))
}

async fn create(node: &Node, weather: &Weather) -> Verdict<uuid::Uuid> {
    let create = CreateCollection {
        copies: weather.copies,
        refine: weather.refine,
        small_limit: weather.small_limit,
        log_retention: weather.log_retention,
        seed: 7,
        ..CreateCollection::new(NAME, weather.dim as u32, weather.metric)
    };
    let engine = node.engine().ok_or("a process is not running")?;
    loop {
        // An attempt whose outcome is unknown may have made it.
        let _ = engine.create_collection(create.clone()).await;
        if let Ok(found) = engine.describe(NAME).await {
            return Ok(found.uuid);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn kill(nodes: Vec<Node>, dice: Dice, mean: u64, deaths: Arc<AtomicU64>) {
    if mean == 0 {
        return;
    }
    loop {
        tokio::time::sleep(Duration::from_millis(dice.between(1, 2 * mean))).await;
        let node = dice.pick(&nodes);
        deaths.fetch_add(1, Ordering::Relaxed);
        node.kill().await;
        tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
        node.start_at_last().await;
    }
}

async fn check(node: &Node, history: &History, weather: &Weather, dice: &Dice, when: &str) -> Verdict {
    let engine: Arc<Engine> = node.engine().ok_or("a process is not running")?;
    let consistency = Consistency::Strong;
    let reader = Reader { engine: &engine, history, weather, at: At::Now, consistency };
    reader.all(dice).await.map_err(|e| format!("{when}: {e}"))?;
    let count = within(engine.count(NAME, consistency, At::Now)).await?;
    let end = history.log_end()?;
    match count.token.sequence == end {
        true => Ok(()),
        false => Err(format!("{when}: a strong read of {}, and the log ends at {end}", count.token.sequence)),
    }
}

async fn compact(node: &Node) -> Verdict<CompactOutcome> {
    let engine = node.engine().ok_or("a process is not running")?;
    within(engine.compact(NAME, Arc::new(|_| {}))).await
}

async fn verify(node: &Node, at: At) -> Verdict {
    let engine = node.engine().ok_or("a process is not running")?;
    let report = within(engine.verify(NAME, at, Arc::new(|_| {}))).await?;
    if report.ok { Ok(()) } else { Err(format!("verify: {:?}", report.problems)) }
}
