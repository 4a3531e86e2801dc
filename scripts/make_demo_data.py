#!/usr/bin/env python3
"""Makes data/demo/sentences.arrow and data/demo/queries.arrow from the minilm_wordnet data set.

usage: make_demo_data.py SOURCE [OUT]      SOURCE holds base_f16.npy, metadata.parquet, queries_f16.npy, ...
needs: numpy and pyarrow (26.0.1 gave the checksums in data/demo/README.md)

The demo takes WordNet definitions of a few everyday topics rather than a sample of all: a sample of a tenth holds
a tenth of each query's neighbours, and its answers look poor however exact the search is.
"""
import hashlib
import os
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 12_288
TOPICS = set(
    "noun.food noun.body verb.motion noun.feeling verb.emotion noun.phenomenon verb.weather noun.time "
    "verb.consumption verb.perception noun.event noun.object noun.shape verb.body".split()
)
# Held-out definitions (rows of queries_f16.npy) and lemmas (rows of queries_lemma_f16.npy), picked by reading their
# exact answers. None of the definitions is among the rows.
QUERIES = [
    ("definition", 308), ("definition", 925), ("definition", 214), ("word", 263), ("definition", 710),
    ("definition", 406), ("definition", 45), ("definition", 301), ("word", 11), ("definition", 442),
    ("definition", 881), ("definition", 452), ("definition", 296), ("word", 80), ("definition", 872),
    ("definition", 421), ("definition", 23), ("definition", 249), ("word", 306), ("definition", 973),
    ("word", 229), ("word", 588), ("definition", 497), ("definition", 122),
]


def vectors(a):
    """n x d float16 as FixedSizeList<float16>[d]."""
    a = np.ascontiguousarray(a, dtype="<f2")
    return pa.FixedSizeListArray.from_arrays(pa.array(a.ravel(), pa.float16()), a.shape[1])


def write(path, columns, rows_per_batch):
    table = pa.table(columns)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
    with open(path, "rb") as f:
        data = f.read()
    print(f"{hashlib.sha256(data).hexdigest()}  {os.path.basename(path)}  {len(data)} bytes  {table.num_rows} rows")


def main(source, out):
    at = lambda name: os.path.join(source, name)
    os.makedirs(out, exist_ok=True)
    meta = pq.read_table(at("metadata.parquet")).to_pylist()
    base = np.load(at("base_f16.npy"))
    rows = [i for i, m in enumerate(meta) if m["lexname"] in TOPICS][:ROWS]
    assert len(rows) == ROWS
    write(
        os.path.join(out, "sentences.arrow"),
        {
            "id": pa.array(range(ROWS), pa.uint64()),
            "vector": vectors(base[rows]),
            "text": pa.array([meta[i]["text"] for i in rows], pa.utf8()),
            "word": pa.array([meta[i]["lemmas"][0] for i in rows], pa.utf8()),
            "lexname": pa.array([meta[i]["lexname"] for i in rows], pa.utf8()),
            "synset": pa.array([meta[i]["synset_id"] for i in rows], pa.utf8()),
        },
        2048,
    )
    held = {"definition": np.load(at("queries_f16.npy")), "word": np.load(at("queries_lemma_f16.npy"))}
    text = {
        "definition": pq.read_table(at("query_metadata.parquet"))["text"].to_pylist(),
        "word": pq.read_table(at("query_lemma_metadata.parquet"))["text"].to_pylist(),
    }
    write(
        os.path.join(out, "queries.arrow"),
        {
            "text": pa.array([text[kind][j] for kind, j in QUERIES], pa.utf8()),
            "kind": pa.array([kind for kind, _ in QUERIES], pa.utf8()),
            "vector": vectors(np.stack([held[kind][j] for kind, j in QUERIES])),
        },
        len(QUERIES),
    )
    shutil.copyfile(at("WORDNET-COPYRIGHT.txt"), os.path.join(out, "WORDNET-COPYRIGHT.txt"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    here = os.path.dirname(os.path.abspath(__file__))
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "..", "data", "demo"))
