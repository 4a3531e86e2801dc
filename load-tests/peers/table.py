"""From JSON lines to a table: speed at a recall, medians over rounds, spread."""

import datetime
import json
import math
import os
import platform
import statistics
from pathlib import Path

TARGETS = [(10, 0.95), (10, 0.99), (100, 0.95)]


def key(effort):
    return json.dumps(effort)


def frontier(points):
    """Points that no other beats in both recall and CPU time, recall up. CPU time, because it means something on a machine with
    other work too; all threads share one CPU, so on a quiet machine it is the wall time."""
    out, least = [], math.inf
    for p in sorted(points, key=lambda p: (-p["recall"], p["cpu_us_per_query"])):
        if p["cpu_us_per_query"] < least:
            out.append(p)
            least = p["cpu_us_per_query"]
    return out[::-1]


def around(points, target):
    """The settings beside a recall: one below and one at or above it, if there are such."""
    line = frontier(points)
    above = [p for p in line if p["recall"] >= target]
    below = [p for p in line if p["recall"] < target]
    return below[-1:] + above[:1] if above else below[-1:]


def value_at(pair, target, what):
    """A figure at a recall, log-linear between the setting below it and the one at or above it."""
    low, high = pair[0], pair[-1]
    if low["recall"] >= target or low is high:
        return low[what]
    part = (target - low["recall"]) / (high["recall"] - low["recall"])
    return math.exp(math.log(low[what]) * (1 - part) + math.log(high[what]) * part)


def sweep(lines, engine, name, k):
    of = [p for p in lines if p["kind"] == "point" and p["engine"] == engine and p["dataset"] == name]
    return [p for p in of if p["mode"] == "latency" and p["k"] == k and p.get("round") == 0]


def choose(lines, engine, name):
    """The points that the rounds measure: beside each target, and Pando's default."""
    out = []
    for k, target in TARGETS:
        out += [(k, p["effort"]) for p in around(sweep(lines, engine, name, k), target)]
    if engine == "pando":
        out += [(10, 0.95), (100, 0.95)]
    seen, unique = set(), []
    for k, effort in out:
        if (k, key(effort)) not in seen:
            seen.add((k, key(effort)))
            unique.append((k, effort))
    return unique


def points_for(engine, points):
    if engine == "pando":
        return ",".join(f"{k}:{effort}" for k, effort in points)
    return json.dumps(points)


def middle(values):
    return statistics.median(values) if values else None


def spread(values):
    """(highest - lowest) / median."""
    return (max(values) - min(values)) / statistics.median(values) if values else None


def at_target(lines, engine, name, k, target, mode):
    """Speeds and CPU times of the rounds at a recall, and the latencies of the setting at or above it."""
    pair = around(sweep(lines, engine, name, k), target)
    if not pair or pair[-1]["recall"] < target:
        return [], [], {}
    speeds, costs, times = [], [], []
    rounds = [p for p in lines if p["kind"] == "point" and p["engine"] == engine and p["dataset"] == name and p["k"] == k and p["mode"] == mode]
    for round in sorted({p["round"] for p in rounds if p.get("round")}):
        have = {key(p["effort"]): p for p in rounds if p["round"] == round}
        if all(key(p["effort"]) in have for p in pair):
            # Recall is that of the sweep: the same answers, over more queries.
            here = [{**have[key(p["effort"])], "recall": p["recall"]} for p in pair]
            speeds.append(value_at(here, target, "qps"))
            costs.append(value_at(here, target, "cpu_us_per_query"))
            times.append(have[key(pair[-1]["effort"])])
    return speeds, costs, {what: middle([t[what] for t in times]) for what in ("p50_ms", "p99_ms") if times and what in times[0]}


def newest(lines, kind, engine, name):
    found = [r for r in lines if r["kind"] == kind and r["engine"] == engine and r["dataset"] == name]
    return found[-1] if found else {}


def row(lines, engine, name):
    plain = name.split(":")[0]
    build, rss = newest(lines, "build", engine, plain), newest(lines, "rss", engine, name)
    out = {"engine": engine, "version": build.get("version"), "settings": build.get("settings"),
           "build_s": build.get("wall_s"), "build_cpu_s": build.get("cpu_s"), "disk_mb": build.get("disk_bytes", 0) / 1e6,
           "root_mb": (build.get("index_bytes", 0) + build.get("segment_bytes", 0)) / 1e6 or None,
           "serve_rss_mb": rss.get("rss_mb"), "serve_peak_mb": rss.get("peak_rss_mb"), "before_mb": rss.get("rss_before_mb"),
           "empty_call_us": newest(lines, "call", engine, name).get("empty_call_us"),
           "best_recall10": max((p["recall"] for p in sweep(lines, engine, name, 10)), default=None)}
    for k, target in TARGETS:
        for mode in ("latency", "throughput"):
            speeds, costs, times = at_target(lines, engine, name, k, target, mode)
            out[f"{mode}@{k}@{target}"] = {"qps": middle(speeds), "spread": spread(speeds), "rounds": len(speeds),
                                           "cpu_us": middle(costs), "cpu_spread": spread(costs), **times}
    return out


def number(x, digits=0):
    return "–" if x is None else f"{x:,.{digits}f}"


def cell(part):
    return "–" if part["qps"] is None else f"{part['qps']:,.0f} ±{part['spread'] * 50:.0f}%"


def cost(part):
    return "–" if part["cpu_us"] is None else f"{part['cpu_us']:,.0f} ±{part['cpu_spread'] * 50:.0f}%"


def latency(part):
    return "–" if part["qps"] is None or "p50_ms" not in part else f"{part['p50_ms'] * 1e3:,.0f} / {part['p99_ms'] * 1e3:,.0f}"


def machine():
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), platform.machine())
    flags = next((line for line in info.splitlines() if line.startswith("flags")), "").split()
    widest = "AVX-512" if "avx512_vpopcntdq" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} CPUs, {widest}, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"


def render(tables, command):
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    text = [f"Machine: {machine()}. {today}. Command: `{command}`.", ""]
    data = {"machine": machine(), "date": today, "command": command, "sets": {}}
    for name, metric, lines in tables:
        engines = list(dict.fromkeys(r["engine"] for r in lines if r["kind"] == "point" and r["dataset"] == name))
        rows = [row(lines, engine, name) for engine in engines]
        rows.sort(key=lambda r: r["latency@10@0.95"]["cpu_us"] or math.inf)
        load = [p["load1"] for p in lines if p["kind"] == "point" and p["dataset"] == name and p.get("round")]
        data["sets"][f"{name} {metric}"] = {"rows": rows, "load1": middle(load)}
        text += [f"### {name}, {metric}", "",
                 "| engine | R@10 ≥ 0.95: CPU µs | QPS | p50 / p99 µs | R@10 ≥ 0.99: CPU µs | QPS | R@100 ≥ 0.95: CPU µs | QPS | 2 threads, R@10 ≥ 0.95 | empty call µs | build s (CPU s) | serving MB | disk MB | best R@10 |",
                 "|" + "---|" * 14]
        for r in rows:
            two, one = r["throughput@10@0.95"], r["latency@10@0.95"]
            times = f"{two['qps']:,.0f} ({two['qps'] / one['qps']:.2f} ×)" if two["qps"] and one["qps"] else "–"
            high, many = r["latency@10@0.99"], r["latency@100@0.95"]
            text.append(f"| {r['engine']} | {cost(one)} | {cell(one)} | {latency(one)} | {cost(high)} | {cell(high)} | {cost(many)} | {cell(many)} | {times} | "
                        f"{number(r['empty_call_us'], 1)} | {number(r['build_s'], 1)} ({number(r['build_cpu_s'], 1)}) | {number(r['serve_peak_mb'])} | "
                        f"{number(r['disk_mb'])} | {number(r['best_recall10'], 3)} |")
        text.append("")
        for k in (10, 100):
            default = [p for p in lines if p["kind"] == "point" and p["engine"] == "pando" and p["dataset"] == name and p.get("default") and p["mode"] == "latency" and p["k"] == k]
            if default:
                d = max(default, key=lambda p: p["n"])
                text.append(f"Pando as it comes (target 0.95), k = {k}: mean recall {d['recall']:.4f}, p5 {d['recall_p5']:.2f}, {middle([p['qps'] for p in default]):,.0f} QPS; "
                            f"a query scans {d['leaves']:.1f} leaves and {d['codes']:,.0f} codes and compares {d['reranked']:.1f} vectors.")
        text += [f"Load of the machine meanwhile: {middle(load) or 0:.1f} (median of 1-minute averages).", ""]
    failed = [r for _, _, lines in tables for r in lines if r["kind"] == "fail"]
    if failed:
        text += ["Failed:", ""] + [f"* {r['engine']} {r['phase']} {r['dataset']}: {r['why'].splitlines()[-1][:160]}" for r in failed] + [""]
    return "\n".join(text), data
