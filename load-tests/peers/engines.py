"""Peers, each behind the same few methods.

build(x, metric, path)        an index of the rows of x, numbered from 0, saved below path
open(path, metric, n, d)      from disk
efforts(n, k)                 settings from cheap to dear
use(effort, k, threads)       before the clock starts
queries(q)                    queries in the form that the peer takes
ask(query, k)                 row numbers, nearest first
ask_many(queries, k, threads) the peer's own batch call, or as many client threads
empty(path, metric, d)        a call that has next to nothing to do: what a call costs by itself

Where a peer has no cosine, rows and queries are normalised, queries before the clock. Settings: 16 links and 200 candidates for
graphs, 2^floor(log2(3.3 sqrt n)) lists for inverted files, and what each peer's documentation advises for the rest.
"""

import concurrent.futures
import importlib.metadata
import os

import numpy as np


def lists(n):
    return max(64, 1 << int(np.log2(3.3 * np.sqrt(n))))


def probes(n):
    return [p for p in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512) if p <= lists(n) // 2]


def unit(x):
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.ascontiguousarray(x / np.where(length == 0, 1, length), np.float32)


def widen(x, multiple=1, least=0):
    """Columns of zeros, where a peer refuses the width: no distance changes."""
    d = x.shape[1]
    want = max(least, -(-d // multiple) * multiple)
    return np.ascontiguousarray(np.pad(x, ((0, 0), (0, want - d))), np.float32) if want > d else x


class Peer:
    package = ""
    about = ""

    def version(self):
        return importlib.metadata.version(self.package)

    def shape(self, x, metric):
        return unit(x) if metric == "cosine" else np.ascontiguousarray(x, np.float32)

    def queries(self, q):
        return list(self.shape(q, self.metric))

    def ask_many(self, queries, k, threads):
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            return list(pool.map(lambda q: self.ask(q, k), queries))

    def empty(self, path, metric, d):
        """Builds and opens an index of very few rows; `ask` is timed on it."""
        x = np.random.default_rng(1).standard_normal((self.few, d)).astype(np.float32)
        self.build(x, metric, path)
        self.open(path, metric, self.few, d)
        self.use(self.efforts(self.few, 1)[0], 1, 1)
        return self.queries(x[:1])[0]

    few = 1

    def close(self):
        pass


class Hnswlib(Peer):
    package, about = "hnswlib", "M=16 ef_construction=200"

    def build(self, x, metric, path):
        import hnswlib
        index = hnswlib.Index("cosine" if metric == "cosine" else "l2", x.shape[1])
        index.init_index(len(x), M=16, ef_construction=200)
        index.set_num_threads(os.cpu_count())
        index.add_items(x, np.arange(len(x)))
        index.save_index(f"{path}/index")

    def open(self, path, metric, n, d):
        import hnswlib
        self.index = hnswlib.Index("cosine" if metric == "cosine" else "l2", d)
        self.index.load_index(f"{path}/index", max_elements=n)

    def efforts(self, n, k):
        return [e for e in (10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024) if e >= k]

    def use(self, effort, k, threads):
        self.index.set_ef(effort)
        self.index.set_num_threads(threads)

    def queries(self, q):
        return list(np.ascontiguousarray(q, np.float32))

    def ask(self, q, k):
        return self.index.knn_query(q, k)[0][0]

    def ask_many(self, queries, k, threads):
        return list(self.index.knn_query(np.stack(queries), k, num_threads=threads)[0])


class FaissIvf(Peer):
    package = "faiss-cpu"

    def __init__(self, kind):
        self.kind = kind
        self.about = {"pq4": "IVF, PQ d/2 x 4 fs, RFlat", "rabitq": "rotation, IVFRaBitQFastScan 1 bit, RefineFlat"}[kind]

    def build(self, x, metric, path):
        import faiss
        faiss.omp_set_num_threads(os.cpu_count())
        x = self.shape(x, metric)
        n, d = x.shape
        if n < 1000:
            index = faiss.IndexFlatL2(d)
        elif self.kind == "pq4":
            index = faiss.index_factory(d, f"IVF{lists(n)},PQ{d // 2}x4fs,RFlat", faiss.METRIC_L2)
        else:
            coarse, turn = faiss.IndexFlatL2(d), faiss.RandomRotationMatrix(d, d)
            inner = faiss.IndexIVFRaBitQFastScan(coarse, d, lists(n), faiss.METRIC_L2, 32, True, 1)
            turned = faiss.IndexPreTransform(turn, inner)
            index = faiss.IndexRefineFlat(turned)
            self.owners = (coarse, turn, inner, turned)    # the C++ side does not own them
        index.train(x)
        index.add(x)
        faiss.write_index(index, f"{path}/index")

    def open(self, path, metric, n, d):
        import faiss
        self.metric = metric
        self.index = faiss.read_index(f"{path}/index")
        self.refine = self.inner = None
        if isinstance(self.index, faiss.IndexRefine):
            self.refine = self.index
            self.inner = faiss.downcast_index(self.refine.base_index)
            if isinstance(self.inner, faiss.IndexPreTransform):
                self.inner = faiss.downcast_index(self.inner.index)

    def efforts(self, n, k):
        factors = {"pq4": (4, 16) if k <= 10 else (2, 6), "rabitq": (10, 40, 160) if k <= 10 else (4, 10)}[self.kind]
        return [[p, f] for f in factors for p in probes(n)]

    def use(self, effort, k, threads):
        import faiss
        faiss.omp_set_num_threads(threads)
        if self.refine is not None:
            self.inner.nprobe, self.refine.k_factor = effort

    def ask(self, q, k):
        return self.index.search(q[None], k)[1][0]

    def ask_many(self, queries, k, threads):
        return list(self.index.search(np.stack(queries), k)[1])


class RabitqIvf(Peer):
    package, about = "rabitqlib", "IvfIndex, 1-bit scan and re-rank with raw vectors (nbits=32)"
    few = 64

    def shape(self, x, metric):
        return widen(super().shape(x, metric), least=64)   # it refuses d < 64

    def build(self, x, metric, path):
        import rabitqlib
        x = self.shape(x, metric)
        n, d = x.shape
        count = lists(n) if n >= 1000 else 1
        means = rabitqlib.RaBitQKMeans(
            d, count, num_threads=os.cpu_count(), final_assignment=rabitqlib.FinalAssignmentMode.Exact
        )
        means.train(x)
        index = rabitqlib.IvfIndex(dim=d, max_elements=n, num_clusters=count, nbits=32, metric="l2")
        index.build(x, means.centroids, means.assignments, num_threads=os.cpu_count())
        index.save(f"{path}/index")

    def open(self, path, metric, n, d):
        import rabitqlib
        self.metric, self.index = metric, rabitqlib.IvfIndex.load(f"{path}/index")

    def efforts(self, n, k):
        return probes(n) if n >= 1000 else [1]

    def use(self, effort, k, threads):
        self.effort = effort

    def ask(self, q, k):
        return self.index.search(q[None], k, self.effort)[0][0]

    def ask_many(self, queries, k, threads):
        return list(self.index.search(np.stack(queries), k, self.effort, num_threads=threads)[0])


class SymphonyQg(RabitqIvf):
    about = "SymqgIndex degree=32 ef=200"

    def build(self, x, metric, path):
        import rabitqlib
        x = self.shape(x, metric)
        index = rabitqlib.SymqgIndex(x.shape[1], 32, metric="l2")
        index.build(x, 200, num_threads=os.cpu_count())
        index.save(f"{path}/index")

    def open(self, path, metric, n, d):
        import rabitqlib
        self.metric, self.index = metric, rabitqlib.SymqgIndex.load(f"{path}/index")

    def efforts(self, n, k):
        return [e for e in (10, 14, 20, 28, 40, 60, 80, 120, 160, 240, 320, 640, 1280) if e >= k]


class Svs(Peer):
    package, about = "scalable-vs", "Vamana degree 32, window 100, float16 (LVQ and LeanVec ask for a processor of Intel)"

    def build(self, x, metric, path):
        import svs
        x = self.shape(x, metric).astype(np.float16)
        settings = svs.VamanaBuildParameters(alpha=1.2, graph_max_degree=32, window_size=100)
        index = svs.Vamana.build(settings, x, svs.DistanceType.L2, os.cpu_count())
        for part in ("config", "graph", "data"):
            os.makedirs(f"{path}/{part}", exist_ok=True)
        index.save(f"{path}/config", f"{path}/graph", f"{path}/data")

    few = 64

    def open(self, path, metric, n, d):
        import svs
        self.metric = metric
        data = svs.VectorDataLoader(f"{path}/data", svs.float16, dims=d)
        graph = svs.GraphLoader(f"{path}/graph")
        self.index = svs.Vamana(
            f"{path}/config", graph, data, svs.DistanceType.L2, query_type=svs.float32, num_threads=1
        )

    def efforts(self, n, k):
        return [e for e in (10, 14, 20, 28, 40, 60, 80, 120, 160, 240, 320, 640) if e >= k]

    def use(self, effort, k, threads):
        self.index.num_threads, self.index.search_window_size = threads, effort

    def ask(self, q, k):
        return self.index.search(q[None], k)[0][0]

    def ask_many(self, queries, k, threads):
        return list(self.index.search(np.stack(queries), k)[0])


class LanceDb(Peer):
    package = "lancedb"

    def __init__(self, kind):
        self.kind, self.about = kind, f"{kind}, embedded, Arrow results of ids"

    def shape(self, x, metric):
        x = np.ascontiguousarray(x, np.float32)
        return widen(x, multiple=8) if self.kind == "IVF_RQ" else x

    def build(self, x, metric, path):
        import lancedb
        import pyarrow as pa
        x = self.shape(x, metric)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
        table = lancedb.connect(path).create_table("rows", pa.table({"id": np.arange(len(x)), "vector": vectors}))
        if len(x) >= 1000:
            more = {"num_partitions": lists(len(x)), "num_bits": 1} if self.kind == "IVF_RQ" else {}
            table.create_index(metric=metric, index_type=self.kind, **more)

    def open(self, path, metric, n, d):
        import lancedb
        self.metric, self.table, self.indexed = metric, lancedb.connect(path).open_table("rows"), n >= 1000

    def efforts(self, n, k):
        if self.kind == "IVF_RQ":
            return [[p, r] for r in ((5, 20) if k <= 10 else (2, 6)) for p in probes(n) if p in (4, 8, 16, 32, 64, 128, 256)]
        return [[e, r] for r in (1, 3) for e in (32, 64, 128, 256, 512) if e >= k * r]   # it refuses less

    def use(self, effort, k, threads):
        self.effort = effort

    def search(self, q, k):
        search = self.table.search(q, vector_column_name="vector").distance_type(self.metric).limit(k)
        search = search.select(["id", "_distance"])        # without _distance it writes a warning per query
        if not self.indexed:
            return search.bypass_vector_index().to_arrow()
        width, refine = self.effort
        search = search.nprobes(width) if self.kind == "IVF_RQ" else search.ef(width)
        return search.refine_factor(refine).to_arrow()

    def ask(self, q, k):
        return self.search(q, k)["id"].to_numpy()

    def ask_many(self, queries, k, threads):
        out = []
        for part in (queries[at : at + 50] for at in range(0, len(queries), 50)):
            if len(part) == 1:
                out.append(self.ask(part[0], k))
                continue
            found = self.search(part, k)
            ids, of = found["id"].to_numpy(), found["query_index"].to_numpy()
            out += [ids[of == query] for query in range(len(part))]
        return out


class QdrantEdge(Peer):
    package = "qdrant-edge-py"

    def __init__(self, quantized):
        self.quantized = quantized
        self.about = "HNSW defaults" + (", int8 codes in memory" if quantized else "")

    def build(self, x, metric, path):
        import qdrant_edge as q
        distance = q.Distance.Cosine if metric == "cosine" else q.Distance.Euclid
        codes = q.ScalarQuantizationConfig(q.ScalarType.Int8, quantile=0.99, always_ram=True) if self.quantized else None
        config = q.EdgeConfig(vectors=q.EdgeVectorParams(size=x.shape[1], distance=distance), quantization_config=codes)
        shard = q.EdgeShard.create(path, config)
        for at in range(0, len(x), 2000):
            points = [q.Point(at + i, row.tolist(), None) for i, row in enumerate(x[at : at + 2000])]
            shard.update(q.UpdateOperation.upsert_points(points))
        shard.flush()
        shard.optimize()
        shard.flush()
        shard.close()

    def open(self, path, metric, n, d):
        import qdrant_edge
        self.module, self.shard = qdrant_edge, qdrant_edge.EdgeShard.load(path)

    def efforts(self, n, k):
        return [e for e in (10, 16, 24, 32, 48, 64, 96, 128, 256, 512) if e >= k]

    def use(self, effort, k, threads):
        self.effort = effort

    def queries(self, q):
        return [row.tolist() for row in np.asarray(q, np.float32)]

    def request(self, q, k):
        m = self.module
        codes = m.QuantizationSearchParams(rescore=True, oversampling=2.0) if self.quantized else None
        return m.QueryRequest(limit=k, query=m.Query.Nearest(q), params=m.SearchParams(hnsw_ef=self.effort, quantization=codes))

    def ask(self, q, k):
        return [point.id for point in self.shard.query(self.request(q, k))]

    def ask_many(self, queries, k, threads):
        out = []
        for at in range(0, len(queries), 50):
            batch = self.module.QueryBatchRequest([self.request(q, k) for q in queries[at : at + 50]])
            out += [[point.id for point in points] for points in self.shard.query_batch(batch)]
        return out

    def close(self):
        self.shard.close()


class Chroma(Peer):
    package, about = "chromadb", "PersistentClient, HNSW defaults (M=16 ef_construction=100)"

    def client(self, path):
        import chromadb
        from chromadb.config import Settings
        return chromadb.PersistentClient(path, settings=Settings(anonymized_telemetry=False))

    def build(self, x, metric, path):
        client = self.client(path)
        space = {"hnsw": {"space": "cosine" if metric == "cosine" else "l2"}}
        rows = client.create_collection("rows", embedding_function=None, configuration=space)
        step = min(5000, client.get_max_batch_size())
        for at in range(0, len(x), step):
            part = x[at : at + step]
            rows.add(ids=[str(at + i) for i in range(len(part))], embeddings=part)

    def open(self, path, metric, n, d):
        self.path, self.effort = path, 100
        self.rows = self.client(path).get_collection("rows", embedding_function=None)

    def efforts(self, n, k):
        return [e for e in (16, 32, 64, 100, 200, 400) if e >= k]

    def use(self, effort, k, threads):
        if effort != self.effort:
            from chromadb.api.shared_system_client import SharedSystemClient
            self.rows.modify(configuration={"hnsw": {"ef_search": effort}})
            SharedSystemClient.clear_system_cache()        # an index in memory keeps its old setting
            self.open(self.path, None, 0, 0)
            self.effort = effort

    def queries(self, q):
        return list(np.asarray(q, np.float32))

    def ask(self, q, k):
        return [int(i) for i in self.rows.query(query_embeddings=[q], n_results=k, include=[])["ids"][0]]


PEERS = {
    "hnswlib": Hnswlib,
    "faiss_ivfpq4": lambda: FaissIvf("pq4"),
    "faiss_rabitq": lambda: FaissIvf("rabitq"),
    "rabitqlib_ivf": RabitqIvf,
    "rabitqlib_symqg": SymphonyQg,
    "svs_f16": Svs,
    "lancedb_ivfrq": lambda: LanceDb("IVF_RQ"),
    "lancedb_hnswsq": lambda: LanceDb("IVF_HNSW_SQ"),
    "qdrant_edge": lambda: QdrantEdge(False),
    "qdrant_edge_int8": lambda: QdrantEdge(True),
    "chroma": Chroma,
}
