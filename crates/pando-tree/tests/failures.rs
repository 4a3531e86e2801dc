//! Errors of the source and the cancel flag end the work with an error, never with a smaller tree.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{Rows, clustered, config, with_env};
use pando_kernels::{Kernels, Metric};
use pando_tree::{Env, NoRows, TreeError, VectorSource, advance, build};

/// Fails at the `n`-th read.
struct Failing {
    rows: Rows,
    left: AtomicUsize,
}

impl VectorSource for Failing {
    fn read(&self, rows: &[u64], out: &mut [f32]) -> Result<(), TreeError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.left.store(0, Ordering::SeqCst);
            return Err(TreeError::source("disk on fire"));
        }
        self.rows.read(rows, out)
    }
}

#[test]
fn a_failing_source_fails_the_build_and_the_checkpoint() {
    let cfg = config(72, Metric::L2);
    let source = |left: usize| Failing {
        rows: Rows::new(72, |row| clustered(row, 72, 20, 0.6)),
        left: AtomicUsize::new(left),
    };
    let live: Vec<u64> = (0..3000).collect();
    let new: Vec<u64> = (3000..4500).collect();
    let good = source(usize::MAX);
    let tree = with_env(&good, 1, 1 << 12, |env| build(&cfg, &live, env).unwrap());
    for left in [0, 3, 40, 90] {
        let bad = source(left);
        let result = with_env(&bad, 2, 1 << 12, |env| build(&cfg, &live, env));
        assert!(matches!(result, Err(TreeError::Source(_))), "{left}: {result:?}");
        let bad = source(left);
        let result = with_env(&bad, 2, 1 << 12, |env| advance(&cfg, tree.clone(), &new, &NoRows, env));
        assert!(matches!(result, Err(TreeError::Source(_))), "{left}");
    }
}

#[test]
fn cancelling_stops() {
    let cfg = config(16, Metric::L2);
    let rows = Rows::new(16, |row| clustered(row, 16, 20, 0.6));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let cancel = AtomicBool::new(false);
    let env = Env {
        kernels: Kernels::detect(),
        pool: &pool,
        vectors: &rows,
        memory: 1 << 20,
        progress: &|_| cancel.store(true, Ordering::Relaxed),
        cancel: &cancel,
    };
    let live: Vec<u64> = (0..3000).collect();
    assert!(matches!(build(&cfg, &live, &env), Err(TreeError::Cancelled)));
}

#[test]
fn wrong_arguments_are_refused() {
    let cfg = config(4, Metric::L2);
    let rows = Rows::new(4, |row| clustered(row, 4, 2, 0.6));
    let refused = |rows_: &[u64]| {
        let result = with_env(&rows, 1, 1 << 20, |env| build(&cfg, rows_, env));
        assert!(matches!(result, Err(TreeError::Invalid(_))), "{result:?}");
    };
    refused(&[2, 1]);
    refused(&[1, 1]);
}
