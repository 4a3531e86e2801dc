"""Builds every index once, measures all engines in turns, prints one table a set. See README.md."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import table

HERE = Path(__file__).parent
DEFAULT = "pando,hnswlib,faiss_ivfpq4,faiss_rabitq,rabitqlib_ivf,rabitqlib_symqg,svs_f16,lancedb_ivfrq,lancedb_hnswsq,qdrant_edge,qdrant_edge_int8,chroma"


class Set:
    def __init__(self, text):
        folder, self.metric, *more = text.split(":")
        self.folder, self.queries = Path(folder), more[0] if more else ""


class Run:
    def __init__(self, args):
        self.args = args

    def raw(self, of):
        return Path(self.args.out) / f"raw-{of.folder.name}-{of.metric}.jsonl"

    def lines(self, of):
        return [json.loads(line) for line in open(self.raw(of))] if self.raw(of).exists() else []

    def name(self, of, queries=True):
        """The set's name in lines."""
        limit = f"[{self.args.limit}]" if self.args.limit else ""
        return of.folder.name + limit + (f":{of.queries}" if of.queries and queries else "")

    def index(self, engine, of):
        limit = f"-{self.args.limit}" if self.args.limit else ""
        return Path(self.args.work) / f"{of.folder.name}{limit}-{of.metric}-{engine}"

    def call(self, engine, phase, of, *more, timeout=3600):
        """One process; its lines go to the raw file. Gives whether it ended well."""
        shared = ["--data", of.folder, "--metric", of.metric, "--index", self.index(engine, of), "--out", self.raw(of)]
        shared += ["--query-set", of.queries] if of.queries else []
        shared += ["--limit", self.args.limit] if self.args.limit else []
        if engine == "pando":
            command = [os.environ["PANDO_BENCH_ENGINE"], phase, "--quiet", *shared, *self.args.pando]
        else:
            command = [sys.executable, HERE / "worker.py", phase, "--engine", engine, *shared]
        try:
            done = subprocess.run([str(part) for part in [*command, *more]], capture_output=True, text=True, timeout=timeout)
            why = done.stderr.strip()[-400:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"not done after {timeout} s"
        if why:
            print(f"{engine} {phase} {self.name(of)}: {why}", file=sys.stderr)
            with open(self.raw(of), "a") as f:
                f.write(json.dumps({"kind": "fail", "engine": engine, "dataset": self.name(of), "phase": phase, "why": why}) + "\n")
        return not why

    def build(self, engine, of):
        index = self.index(engine, of)
        name = self.name(of, queries=False)
        built = any(r["kind"] == "build" and r["engine"] == engine and r["dataset"] == name for r in self.lines(of))
        if index.exists() and not self.args.rebuild and (built or self.args.search_only):
            return
        print(f"building {index.name}", file=sys.stderr)
        plain = Set(f"{of.folder}:{of.metric}")
        if not self.call(engine, "build", plain):
            shutil.rmtree(index, ignore_errors=True)

    def sweep(self, engine, of):
        """Round 0: the whole curve, to know which settings reach the targets, and the cost of an empty call."""
        self.call(engine, "search", of, "--round", 0, "--budget", self.args.budget, "--call-cost", "--queries", self.args.queries)

    def measure(self, engine, of, points, round):
        given = table.points_for(engine, points)
        more = ["--points", given, "--round", round, "--budget", self.args.budget, "--threads2", "--queries", self.args.queries]
        self.call(engine, "search", of, *more)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("sets", nargs="+", metavar="DIR:METRIC[:QUERYSET]")
    p.add_argument("--engines", default=DEFAULT), p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--budget", type=float, default=0.6, help="seconds of one point")
    p.add_argument("--queries", type=int, default=1000)
    p.add_argument("--out", default="peers-out", help="folder for raw-*.jsonl, table.md, table.json")
    p.add_argument("--work", default="peers-idx", help="folder for indexes, which are kept")
    p.add_argument("--rebuild", action="store_true"), p.add_argument("--limit", type=int, default=0, help="smoke test: the first rows")
    p.add_argument("--search-only", action="store_true", help="indexes may come from another run")
    p.add_argument("--pando", action="append", default=[], help="more arguments for pando-bench-engine")
    args = p.parse_args()
    args.pando = [word for text in args.pando for word in text.split()]
    for folder in (args.out, args.work):
        os.makedirs(folder, exist_ok=True)
    run, engines, sets = Run(args), args.engines.split(","), [Set(text) for text in args.sets]
    for of in sets:
        for engine in engines:
            run.build(engine, of)
    tables = []
    for of in sets:
        name = run.name(of)
        here = [engine for engine in engines if run.index(engine, of).exists()]
        for engine in here:
            run.sweep(engine, of)
        chosen = {engine: table.choose(run.lines(of), engine, name) for engine in here}
        for round in range(1, args.rounds + 1):
            print(f"{name}: round {round} of {args.rounds}", file=sys.stderr)
            turn = round % max(1, len(here))               # a drift of the machine meets each in another place
            for engine in here[turn:] + here[:turn]:
                if chosen[engine]:
                    run.measure(engine, of, chosen[engine], round)
        tables.append((name, of.metric, run.lines(of)))
    text, data = table.render(tables, " ".join(["load-tests/peers/run", *sys.argv[1:]]))
    (Path(args.out) / "table.md").write_text(text)
    (Path(args.out) / "table.json").write_text(json.dumps(data, indent=1))
    print(text)


if __name__ == "__main__":
    main()
