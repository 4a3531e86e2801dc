//! Dimensions of collections, so that a bad record can be named before the engine is asked. A name may change hands: what is kept
//! here is only ever used to refuse after it was looked up afresh, and the engine has the last word.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pando_engine::Engine;
use tonic::Status;

use crate::errors::status;

/// Names kept; beyond, all are forgotten.
const MOST: usize = 10_000;

/// A small cache of name → dimension.
pub struct Dimensions {
    engine: Arc<Engine>,
    known: Mutex<HashMap<String, usize>>,
}

impl Dimensions {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, known: Mutex::new(HashMap::new()) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, usize>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, else what the engine says.
    pub async fn get(&self, collection: &str) -> Result<usize, Status> {
        let known = self.lock().get(collection).copied();
        match known {
            Some(dimension) => Ok(dimension),
            None => self.fresh(collection).await,
        }
    }

    /// What the engine says now.
    pub async fn fresh(&self, collection: &str) -> Result<usize, Status> {
        let described = self.engine.describe(collection).await;
        let mut known = self.lock();
        match described {
            Ok(described) => {
                let dimension = described.config.dimension as usize;
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(collection.to_owned(), dimension);
                Ok(dimension)
            }
            Err(error) => {
                known.remove(collection);
                Err(status(error))
            }
        }
    }
}
