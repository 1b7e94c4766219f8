#!/usr/bin/env python3
"""Runs the control plane's microbenchmarks and holds their ratios, best of several runs each:
plan + commit per running request within 2x from 8 to 4,096 requests; push + pop with 10^6 waiting at
most 3x that with 10^3."""
import json
import subprocess
import sys

BOUNDS = [  # benchmark, denominator, bound, divide by the argument?
    ("BM_PlanCommit/256", "BM_PlanCommit/8", 2.0, True),
    ("BM_PlanCommit/4096", "BM_PlanCommit/8", 2.0, True),
    ("BM_QueuePushPop/1000000", "BM_QueuePushPop/1000", 3.0, False),
]

out = subprocess.run(
    [sys.argv[1], "--benchmark_filter=PlanCommit|QueuePushPop", "--benchmark_format=json", "--benchmark_min_time=0.1",
     "--benchmark_repetitions=7", "--benchmark_enable_random_interleaving=true"],
    check=True, capture_output=True, text=True).stdout
best = {}
for run in json.loads(out)["benchmarks"]:
    if run["run_type"] == "iteration":
        best[run["run_name"]] = min(run["cpu_time"], best.get(run["run_name"], float("inf")))

failed = False
for name, base, bound, per_item in BOUNDS:
    size = int(name.split("/")[1]) if per_item else 1
    base_size = int(base.split("/")[1]) if per_item else 1
    ours, theirs = best[name] / size, best[base] / base_size
    wrong = ours > bound * theirs
    failed |= wrong
    print(f"{name}: {ours:.1f} ns, {ours / theirs:.2f} x {base} ({theirs:.1f} ns), bound {bound} x{'   <- over' if wrong else ''}")
sys.exit(1 if failed else 0)
