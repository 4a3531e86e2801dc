//! What clients ask, and whether the answers are right.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use pando_engine::api::*;
use pando_engine::{Engine, Error, ErrorKind};
use pando_format::RowsBuilder;
use pando_kernels::Kernels;

use crate::history::{CALL, History, Live, Records, Told, mark};
use crate::keeper::Loose;
use crate::node::Node;
use crate::random::Dice;
use crate::weather::Weather;

/// The collection of a run.
pub const NAME: &str = "c";

/// What everybody of a run knows.
#[derive(Clone)]
pub struct World {
    /// Processes.
    pub nodes: Vec<Node>,
    /// Oracle.
    pub history: History,
    /// Faults and sizes.
    pub weather: Arc<Weather>,
    /// Next number of a call.
    pub calls: Arc<AtomicI64>,
    /// Names of roots that may be gone.
    pub loose: Loose,
}

/// Wrong, and why.
pub type Verdict<T = ()> = Result<T, String>;

/// An error that a caller may meet in this weather.
pub fn tolerable(error: &Error, weather: &Weather, what: &str) -> Verdict {
    let faults = &weather.faults;
    if !discreet(&error.message) {
        return Err(format!("{what}: an error that shows the inside: {error:?}"));
    }
    let fine = match error.kind {
        ErrorKind::Unavailable | ErrorKind::Aborted => weather.may_fail(),
        ErrorKind::DataLoss => faults.cut + faults.flip > 0,
        ErrorKind::ResourceExhausted => true,
        _ => false,
    };
    if fine { Ok(()) } else { Err(format!("{what}: {error:?}")) }
}

/// Nothing of keys, hashes or hosts (law 10).
fn discreet(message: &str) -> bool {
    !message.contains('/') && !message.split(|c: char| !c.is_ascii_hexdigit()).any(|run| run.len() > 15)
}

/// Ids are numbers and texts.
pub fn id(n: u64) -> RecordId {
    if n.is_multiple_of(5) { RecordId::Str(format!("text {n}")) } else { RecordId::U64(n) }
}

/// A vector near one of a few centres.
pub fn vector(dice: &Dice, dim: usize) -> Vec<f32> {
    let around = Dice::new(dice.below(12), 7);
    let mut vector: Vec<f32> = (0..dim).map(|_| around.unit() + 0.3 * dice.unit()).collect();
    // Not the zero vector.
    vector[0] += if vector[0] < 0.0 { -0.01 } else { 0.01 };
    vector
}

/// Records of one call.
pub fn rows(dim: usize, records: &[(RecordId, Vec<f32>)], call: i64) -> Rows {
    let mut builder = RowsBuilder::new(dim);
    for (id, vector) in records {
        builder.push(id.clone(), vector, [(CALL, &Value::Int64(call))]).expect("a good record");
    }
    builder.finish().expect("good records")
}

fn request(vectors: Vec<Vec<f32>>, top_k: u32) -> QueryRequest {
    QueryRequest {
        collection: NAME.into(),
        vectors,
        top_k,
        include: Include::default(),
        consistency: Consistency::Strong,
        at: At::Now,
        exact: false,
        effort: Effort::default(),
        epsilon: None,
    }
}

fn everything() -> Include {
    Include { vector: true, attributes: IncludeAttributes::All }
}

fn is(record: &Record, live: &Live) -> bool {
    record.vector.as_ref() == Some(&live.0) && record.attributes.get(CALL) == Some(&Value::Int64(live.1))
}

/// Count, fetch, scan and searches of one engine, each answer against the oracle at the answer's own position.
pub struct Reader<'a> {
    /// Who answers.
    pub engine: &'a Engine,
    /// Oracle.
    pub history: &'a History,
    /// Sizes, metric.
    pub weather: &'a Weather,
    /// Version asked for.
    pub at: At,
    /// Freshness asked for.
    pub consistency: Consistency,
}

/// What a read came to: refused with a tolerable error, or right.
type Answer = Result<Verdict, Error>;

impl Reader<'_> {
    /// Records at the position of an answer, which must be fresh enough.
    fn records(&self, seen: u64, token: &Token) -> Verdict<Arc<Records>> {
        if self.at == At::Now {
            match self.consistency {
                Consistency::Strong => self.history.read_at(seen, token.sequence)?,
                Consistency::AtLeast(least) if token.sequence < least.sequence => {
                    return Err(format!(
                        "an answer from {}, not at least {}",
                        token.sequence, least.sequence
                    ));
                }
                _ => {}
            }
        }
        self.history.at(token.sequence)
    }

    /// Count.
    pub async fn count(&self) -> Answer {
        let seen = self.history.seen();
        let answer = self.engine.count(NAME, self.consistency, self.at.clone()).await?;
        Ok(self.records(seen, &answer.token).and_then(|records| {
            let (got, want) = (answer.count, records.len() as u64);
            if got == want { Ok(()) } else { Err(format!("count {got} instead of {want}")) }
        }))
    }

    /// Fetch of some ids.
    pub async fn fetch(&self, ids: Vec<RecordId>) -> Answer {
        let seen = self.history.seen();
        let at = self.at.clone();
        let answer = self.engine.fetch(NAME, ids.clone(), everything(), self.consistency, at).await?;
        Ok(self.records(seen, &answer.token).and_then(|records| {
            for (id, got) in ids.iter().zip(&answer.records) {
                let right = match (got, records.get(id)) {
                    (None, None) => true,
                    (Some(record), Some(live)) => record.id == *id && is(record, live),
                    _ => false,
                };
                if !right {
                    let want = records.get(id).map(|live| live.1);
                    let at = answer.token.sequence;
                    return Err(format!("fetch of {id} at {at}: {got:?} instead of call {want:?}"));
                }
            }
            Ok(())
        }))
    }

    /// Scan of everything.
    pub async fn scan(&self, page: u32) -> Answer {
        let seen = self.history.seen();
        let at = self.at.clone();
        let pages = self.engine.scan(NAME, everything(), self.consistency, at, page).await?;
        let pages: Vec<ScanPage> = pages.try_collect().await?;
        let Some(first) = pages.first() else { return Ok(Ok(())) };
        Ok(self.records(seen, &first.token).and_then(|records| {
            let got: Vec<&Record> = pages.iter().flat_map(|page| &page.records).collect();
            let same = got.len() == records.len()
                && got.iter().zip(records.iter()).all(|(got, (id, live))| got.id == *id && is(got, live));
            let moved = pages.iter().any(|page| page.token != first.token);
            match same && !moved {
                true => Ok(()),
                false => Err(format!(
                    "scan at {}: {} records of {}",
                    first.token.sequence,
                    got.len(),
                    records.len()
                )),
            }
        }))
    }

    /// One kind of search.
    pub async fn search(&self, queries: Vec<Vec<f32>>, k: u32, exact: bool, effort: Effort) -> Answer {
        let seen = self.history.seen();
        let asked = QueryRequest {
            exact,
            effort,
            at: self.at.clone(),
            consistency: self.consistency,
            ..request(queries.clone(), k)
        };
        let sure = exact || effort == Effort::RecallTarget(1.0);
        let answers = self.engine.query(asked).await?;
        Ok(queries.iter().zip(&answers).try_for_each(|(query, answer)| {
            let records = self.records(seen, &answer.token)?;
            let what = format!("search at {} (exact {exact}, {effort:?}, k {k})", answer.token.sequence);
            self.judge(query, answer, &records, k as usize, sure).map_err(|e| format!("{what}: {e}"))
        }))
    }

    fn judge(&self, query: &[f32], answer: &QueryAnswer, records: &Records, k: usize, sure: bool) -> Verdict {
        let kernels = Kernels::detect();
        let distance = |vector: &[f32]| kernels.distance_f64(self.weather.metric, query, vector);
        let got: Vec<(f64, &RecordId)> = answer.matches.iter().map(|m| (m.distance, &m.record.id)).collect();
        if got.len() != k.min(records.len()) || !answer.complete {
            return Err(format!("{} results of {}, complete: {}", got.len(), records.len(), answer.complete));
        }
        let unique: BTreeSet<&RecordId> = got.iter().map(|(_, id)| *id).collect();
        if unique.len() != got.len() {
            return Err("a record twice".into());
        }
        for (found, id) in &got {
            match records.get(*id) {
                None => return Err(format!("{id} is not live")),
                Some((vector, _)) if distance(vector) != *found => {
                    return Err(format!("{id}: distance {found} instead of {}", distance(vector)));
                }
                Some(_) => {}
            }
        }
        let order =
            |a: &(f64, &RecordId), b: &(f64, &RecordId)| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1));
        if !got.is_sorted_by(|a, b| order(a, b).is_lt()) {
            return Err("out of order".into());
        }
        if sure {
            let mut want: Vec<(f64, &RecordId)> =
                records.iter().map(|(id, live)| (distance(&live.0), id)).collect();
            want.sort_by(order);
            want.truncate(k);
            if let Some(at) = got.iter().zip(&want).position(|(got, want)| got != want) {
                return Err(format!("place {at}: {:?} instead of {:?}", got[at], want[at]));
            }
        }
        Ok(())
    }

    /// Everything there is to ask. Errors of the engine are wrong, too.
    pub async fn all(&self, dice: &Dice) -> Verdict {
        let fine = |answer: Answer| answer.unwrap_or_else(|error| Err(format!("{error:?}")));
        fine(self.count().await)?;
        fine(self.scan(37).await)?;
        fine(self.fetch((0..self.weather.ids).step_by(3).map(id).collect()).await)?;
        let queries: Vec<_> = (0..2).map(|_| vector(dice, self.weather.dim)).collect();
        for k in [1, 10] {
            for (exact, effort) in
                [(true, Effort::default()), (false, Effort::RecallTarget(1.0)), (false, Effort::default())]
            {
                fine(self.search(queries.clone(), k, exact, effort).await)?;
            }
        }
        Ok(())
    }
}

/// One client.
pub struct Client {
    /// The world it is in.
    pub world: World,
    /// Its own chance.
    pub dice: Dice,
}

impl Client {
    /// Makes its calls.
    pub async fn run(self) -> Verdict {
        let mut token = None;
        for _ in 0..self.world.weather.calls {
            tokio::time::sleep(Duration::from_millis(self.dice.below(150))).await;
            match self.dice.below(100) {
                0..35 => self.upsert().await?,
                35..50 => self.delete().await?,
                50..90 => self.read(&mut token).await?,
                90..95 => self.compact().await?,
                95..98 => self.collect().await?,
                _ => self.verify().await?,
            }
        }
        Ok(())
    }

    fn node(&self) -> &Node {
        self.dice.pick(&self.world.nodes)
    }

    async fn upsert(&self) -> Verdict {
        let weather = &self.world.weather;
        let n = if self.dice.chance(150) {
            self.dice.between(1, weather.burst)
        } else {
            self.dice.between(1, 12)
        };
        let records: Vec<_> =
            (0..n).map(|_| (id(self.dice.below(weather.ids)), vector(&self.dice, weather.dim))).collect();
        let call = self.world.calls.fetch_add(1, Ordering::Relaxed);
        let rows = rows(weather.dim, &records, call);
        self.write("upsert", call, move |engine, key| {
            let rows = rows.clone();
            async move { engine.upsert(NAME, rows, key).await }
        })
        .await
    }

    async fn delete(&self) -> Verdict {
        let call = self.world.calls.fetch_add(1, Ordering::Relaxed);
        let mut ids: Vec<_> =
            (0..self.dice.between(1, 20)).map(|_| id(self.dice.below(self.world.weather.ids))).collect();
        ids.push(mark(call));
        self.write("delete", call, move |engine, key| {
            let ids = ids.clone();
            async move { engine.delete_ids(NAME, ids, key).await }
        })
        .await
    }

    /// A write; with a key, one whose outcome is unknown is repeated, perhaps elsewhere.
    async fn write<F: Future<Output = pando_engine::Result<WriteOutcome>> + Send + 'static>(
        &self,
        what: &str,
        call: i64,
        write: impl Fn(Arc<Engine>, Option<String>) -> F,
    ) -> Verdict {
        let (history, weather) = (&self.world.history, &self.world.weather);
        let key = self.dice.chance(600).then(|| format!("key {call}"));
        let attempts = if key.is_some() { self.dice.between(1, 4) } else { 1 };
        let what = format!("{what}, call {call}");
        history.begin(call);
        for _ in 0..attempts {
            let outcome = self.node().call(&what, |engine| write(engine, key.clone())).await;
            match outcome {
                // The process died, or was dead.
                None => tokio::time::sleep(Duration::from_millis(self.dice.between(10, 300))).await,
                Some(Ok(outcome)) => {
                    let WriteOutcome { token, affected } = outcome;
                    return history.end(call, Told::Done { sequence: token.sequence, affected });
                }
                Some(Err(error)) => {
                    tolerable(&error, weather, "write")?;
                    let unwritten = matches!(error.reason, "STORAGE_UNAVAILABLE" | "BACKLOG_FULL")
                        && error.message.contains("nothing was written");
                    // An earlier attempt may be in the log for all that.
                    if unwritten && attempts == 1 {
                        return history.end(call, Told::Refused);
                    }
                    tokio::time::sleep(Duration::from_millis(self.dice.below(100))).await;
                }
            }
        }
        history.end(call, Told::Unknown)
    }

    async fn read(&self, last: &mut Option<Token>) -> Verdict {
        let world = self.world.clone();
        let dice = Dice::new(self.dice.next(), 11);
        let consistency = match (self.dice.below(8), *last) {
            (0, _) => Consistency::Eventual,
            (1, Some(token)) => Consistency::AtLeast(token),
            _ => Consistency::Strong,
        };
        let outcome = self.node().call("read", |engine| async move {
            let (history, weather) = (&world.history, &*world.weather);
            let mut at = At::Now;
            if dice.chance(150) {
                let roots = engine.list_roots(NAME).await?;
                if !roots.is_empty() {
                    at = At::Root(dice.pick(&roots).root);
                }
            }
            let reader = Reader { engine: &engine, history, weather, at, consistency };
            let queries = (0..dice.between(1, 2)).map(|_| vector(&dice, weather.dim)).collect();
            let k = *dice.pick(&[1, 3, 10, 1000]);
            match dice.below(6) {
                0 => reader.count().await,
                1 => {
                    reader
                        .fetch((0..dice.between(1, 30)).map(|_| id(dice.below(weather.ids))).collect())
                        .await
                }
                2 => reader.scan(dice.between(1, 100) as u32).await,
                3 => reader.search(queries, k, true, Effort::default()).await,
                4 => reader.search(queries, k, false, Effort::RecallTarget(1.0)).await,
                _ => reader.search(queries, k, false, Effort::default()).await,
            }
        });
        match outcome.await {
            None => Ok(()),
            Some(Ok(verdict)) => verdict,
            Some(Err(error)) => {
                // A root may be younger than what this process knows, or be collected between listing and reading.
                if error.reason == "ROOT_NOT_FOUND" || self.expires(&error) {
                    return Ok(());
                }
                tolerable(&error, &self.world.weather, "read")
            }
        }?;
        if let Some(engine) = self.node().engine()
            && let Some(Ok(answer)) = self
                .node()
                .call("count", |_| async move { engine.count(NAME, Consistency::Eventual, At::Now).await })
                .await
        {
            *last = Some(answer.token);
        }
        Ok(())
    }

    async fn compact(&self) -> Verdict {
        match self
            .node()
            .call("checkpoint", |engine| async move { engine.compact(NAME, Arc::new(|_| {})).await })
            .await
        {
            Some(Err(error)) => tolerable(&error, &self.world.weather, "checkpoint"),
            _ => Ok(()),
        }
    }

    async fn verify(&self) -> Verdict {
        let verify = async |engine: Arc<Engine>| engine.verify(NAME, At::Now, Arc::new(|_| {})).await;
        match self.node().call("verify", verify).await {
            Some(Ok(report)) if !report.ok && !self.damages() => {
                Err(format!("verify: {:?}", report.problems))
            }
            Some(Err(error)) if self.expires(&error) => Ok(()),
            Some(Err(error)) => tolerable(&error, &self.world.weather, "verify"),
            _ => Ok(()),
        }
    }

    async fn collect(&self) -> Verdict {
        let dry = self.dice.chance(200);
        let collect = move |engine: Arc<Engine>| async move {
            engine.collect_garbage(NAME, dry, Arc::new(|_| {})).await
        };
        let loose = self.world.loose.any();
        match self.node().call("garbage", collect).await {
            // A name that came too late stops sweeps until it is taken away.
            Some(Err(error)) if (loose || self.world.loose.any()) && error.kind == ErrorKind::DataLoss => {
                Ok(())
            }
            Some(Err(error)) => tolerable(&error, &self.world.weather, "garbage"),
            _ => Ok(()),
        }
    }

    /// A read may outlive its root where roots are not kept for long.
    fn expires(&self, error: &Error) -> bool {
        error.reason == "ROOT_EXPIRED" && self.world.weather.root_retention < Duration::from_secs(600)
    }

    fn damages(&self) -> bool {
        self.world.weather.faults.cut + self.world.weather.faults.flip > 0
    }
}
