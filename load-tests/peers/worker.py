"""One peer, one phase, one process. Writes JSON lines of the same form as pando-bench-engine."""

import argparse
import datetime
import glob
import json
import os
import resource
import shutil
import time
from pathlib import Path

import numpy as np

from engines import PEERS

CPUS = sorted(os.sched_getaffinity(0))


def load(folder, names):
    for name in names:
        for path in (folder / f"{name}.npy", folder / f"{name}_f16.npy"):
            if path.exists():
                return np.load(path)
    raise SystemExit(f"{folder} has no {' or '.join(names)}.npy")


class Data:
    def __init__(self, args):
        self.folder, self.limit = Path(args.data), args.limit
        mark = f"_{args.query_set}" if args.query_set else ""
        self.name = self.folder.name + (f"[{args.limit}]" if args.limit else "") + (f":{args.query_set}" if args.query_set else "")
        self.q = load(self.folder, [f"queries{mark}", f"queries{mark}_in"])[: args.queries].astype(np.float32)
        self.metric = args.metric
        self.mark = mark

    def base(self):
        x = load(self.folder, ["base"])
        return np.ascontiguousarray(x[: self.limit or len(x)], np.float32)

    def truth(self):
        if not self.limit:
            name = "ip" if self.metric == "dot" else self.metric
            return load(self.folder, [f"gt{self.mark}_{name}_ids", f"gt{self.mark}_in_ids"])[: len(self.q)]
        x, q = self.base().astype(np.float64), self.q.astype(np.float64)
        if self.metric == "cosine":
            score = q @ (x / np.linalg.norm(x, axis=1, keepdims=True)).T
        else:
            score = q @ x.T - (0.5 * (x**2).sum(1) if self.metric == "l2" else 0)
        return np.argsort(-score, axis=1, kind="stable")[:, :100]


def pin(n):
    for task in glob.glob("/proc/self/task/*"):
        try:
            os.sched_setaffinity(int(os.path.basename(task)), set(CPUS[-n:]))
        except ProcessLookupError:
            pass


def cpu():
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def memory(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def disk(path):
    os.sync()
    return sum(f.stat().st_blocks * 512 for f in Path(path).rglob("*") if f.is_file())


def emit(args, **row):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    row = {"date": now, "engine": args.engine, "load1": round(os.getloadavg()[0], 2), "round": args.round, **row}
    with open(args.out, "a") as f:
        f.write(json.dumps(row) + "\n")


def quality(answers, truth, k):
    hits = wanted = short = dup = 0
    each = []
    for answer, true in zip(answers, truth):
        want = {int(i) for i in true[:k] if i >= 0}
        have = [int(i) for i in answer if 0 <= i < 2**32 - 1]
        hit = len(want.intersection(have))
        hits, wanted = hits + hit, wanted + len(want)
        short, dup = short + (len(have) < len(want)), dup + (len(set(have)) < len(have))
        each.append(hit / max(1, len(want)))
    each.sort()
    return {"recall": round(hits / max(1, wanted), 5), "recall_p5": each[len(each) // 20], "short": short, "dup": dup}


def build(args):
    peer, data = PEERS[args.engine](), Data(args)
    x = data.base()
    shutil.rmtree(args.index, ignore_errors=True)
    os.makedirs(args.index)
    before, start, start_cpu = memory("VmRSS"), time.perf_counter(), cpu()
    peer.build(x, args.metric, args.index)
    wall, used = time.perf_counter() - start, cpu() - start_cpu
    emit(args, kind="build", dataset=data.name, metric=args.metric, version=peer.version(), settings=peer.about, n=len(x), d=x.shape[1],
         wall_s=round(wall, 2), cpu_s=round(used, 2), peak_rss_mb=memory("VmHWM"), rss_before_mb=before, disk_bytes=disk(args.index))


def clock(peer, queries, k, budget):
    warming = time.perf_counter()
    for q in queries[:20]:
        peer.ask(q, k)
        if time.perf_counter() - warming > 0.3:
            break
    times, answers = [], []
    start_cpu, start = cpu(), time.perf_counter()
    for q in queries:
        sent = time.perf_counter()
        answer = peer.ask(q, k)
        end = time.perf_counter()
        times.append(end - sent)
        answers.append(answer)
        if end - start > 3 * budget or (end - start > budget and len(times) >= 100):
            break
    wall, used = time.perf_counter() - start, cpu() - start_cpu
    ms = np.array(times) * 1e3
    at = lambda q: round(float(np.percentile(ms, q)), 4)
    return answers, {"n": len(times), "qps": round(len(times) / wall, 2), "mean_ms": round(float(ms.mean()), 4), "p50_ms": at(50), "p99_ms": at(99),
                     "cpu_us_per_query": round(used / len(times) * 1e6, 1)}


def call_cost(args, d):
    """Microseconds of a call that has next to nothing to do."""
    folder = args.index + ".empty"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    peer = PEERS[args.engine]()
    try:
        q = peer.empty(folder, args.metric, d)
        times = []
        for _ in range(300):
            sent = time.perf_counter()
            peer.ask(q, 1)
            times.append(time.perf_counter() - sent)
        peer.close()
        return round(float(np.median(times)) * 1e6, 2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def search(args):
    peer, data = PEERS[args.engine](), Data(args)
    shape = np.load(next(p for p in (data.folder / "base.npy", data.folder / "base_f16.npy") if p.exists()), mmap_mode="r").shape
    n, d = min(args.limit or shape[0], shape[0]), shape[1]
    truth = data.truth()
    before, start = memory("VmRSS"), time.perf_counter()
    peer.open(args.index, args.metric, n, d)
    queries = peer.queries(data.q)
    peer.use(peer.efforts(n, 10)[0], 10, 1)
    peer.ask(queries[0], 10)
    emit(args, kind="open", dataset=data.name, first_answer_s=round(time.perf_counter() - start, 4), rss_before_mb=before)
    given = json.loads(args.points)
    points = given or [[k, effort] for k in (10, 100) for effort in peer.efforts(n, k)]
    enough = set()
    for k, effort in points:
        curve = (k, effort[1] if isinstance(effort, list) else None)
        if not given and curve in enough:
            continue
        pin(1)
        peer.use(effort, k, 1)
        answers, figures = clock(peer, queries, k, args.budget)
        found = quality(answers, truth, k)
        row = dict(kind="point", dataset=data.name, metric=args.metric, k=k, effort=effort)
        emit(args, **row, mode="latency", threads=1, **figures, **found)
        if found["recall"] >= 0.998 or figures["qps"] < 20:
            enough.add(curve)
        if args.threads2:
            pin(len(CPUS))
            peer.use(effort, k, len(CPUS))
            take = queries[: int(min(len(queries), max(100, figures["qps"] * args.budget)))]
            done, start, start_cpu = 0, time.perf_counter(), cpu()
            while done == 0 or time.perf_counter() - start < args.budget * 0.5:
                peer.ask_many(take, k, len(CPUS))
                done += len(take)
            wall, used = time.perf_counter() - start, cpu() - start_cpu
            emit(args, **row, mode="throughput", threads=len(CPUS), n=done, qps=round(done / wall, 2), cpu_us_per_query=round(used / done * 1e6, 1))
    emit(args, kind="rss", dataset=data.name, peak_rss_mb=memory("VmHWM"), rss_mb=memory("VmRSS"), rss_before_mb=before)
    peer.close()
    if args.call_cost:
        pin(1)
        emit(args, kind="call", dataset=data.name, empty_call_us=call_cost(args, d))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("phase", choices=["build", "search"])
    for name in ("engine", "data", "index", "out"):
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--metric", default="cosine"), p.add_argument("--query-set", default="")
    p.add_argument("--queries", type=int, default=1000), p.add_argument("--limit", type=int, default=0)
    p.add_argument("--budget", type=float, default=0.5), p.add_argument("--points", default="[]")
    p.add_argument("--round", type=int, default=0)
    p.add_argument("--threads2", action="store_true"), p.add_argument("--call-cost", action="store_true")
    args = p.parse_args()
    if args.phase == "build":
        pin(len(CPUS))
        build(args)
    else:
        search(args)


if __name__ == "__main__":
    main()
