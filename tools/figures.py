#!/usr/bin/env python3
"""Measures every figure of README.md and docs/PERFORMANCE.md anew and puts it in its place.

  tools/figures.py [--peer /path/to/llama-server] [--batched-bench /path/to/llama-batched-bench [--large GGUF]]
                   [--rounds 3] [--only batching,batched,interference,kernels,large,peer,roofline,sim,speculation]

A place is what stands between `<!-- figures: NAME -->` and `<!-- end -->`. The plot goes to docs/img/bench.svg. Takes
about a quarter of an hour, with llama.cpp beside it an hour or more; leave the machine alone meanwhile.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKEIN = ROOT / "build/skein"
MICROBENCH = ROOT / "build/release/microbench/skein_microbench"
PAGES = [ROOT / "README.md", ROOT / "docs/PERFORMANCE.md"]


def output(*line):
    print("figures:", *line, file=sys.stderr)
    return subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout


def measured(text):
    """The header as prose, the tables as they are."""
    lines = [line if line.startswith("|") or not line else line + "  " for line in text.strip().splitlines()]
    return "\n".join(lines).rstrip()


def put(name, text):
    """-> how many places there were for it"""
    places = 0
    pattern = re.compile(rf"(<!-- figures: {name} -->\n).*?(<!-- end -->)", re.S)
    for page in PAGES:
        before = page.read_text()
        after, count = pattern.subn(lambda m: f"{m[1]}{text}\n{m[2]}", before)
        places += count
        if after != before:
            page.write_text(after)
    return places


def short_table(report):
    """README's: the columns that fit."""
    lines = ["| requests at once | tokens/s | speedup | of the hardware's limit | first token p50 | between tokens p50 |",
             "|---|---:|---:|---:|---:|---:|"]
    for result in report["results"]:
        level = "one at a time" if result["mode"] == "single" else str(result["concurrency"])
        lines.append(f"| {level} | {result['tokens_per_second']:.1f} | {result['speedup']:.2f}x | "
                     f"{result.get('percent_of_limit', 0):.1f} % | {result['ttft_p50_ms']:.0f} ms | "
                     f"{result['itl_p50_ms']:.1f} ms |")
    machine = report["machine"]
    return (f"{report['model']['name']} on {machine['threads']} threads of {machine['cpu']} "
            f"(`skein bench --rounds {report['workload']['rounds']}`, skein {report['skein']}):\n\n" + "\n".join(lines))


def peaks():
    """One thread's: {"read": GB/s, "int8": T/s, "float32": T/s}, as far as the machine has them"""
    found = {}
    for line in output(SKEIN, "bench", "roofline", "--model", "default", "--threads", "1", "--markdown").splitlines():
        match = re.match(r"\| (read \d+ MB, over|multiply and add, (int8|float32)).*\| +([0-9.]+) ", line)
        if match:
            found[match[2] or "read"] = float(match[3])
    return found


def kernel_table():
    """Products on one thread, weights from memory as in a step, the median of five."""
    cases = [("Q4_1", "q4_1", "int8"), ("Q4_0", "q4_0", "int8"), ("Q8_0", "q8_0", "int8"), ("bfloat16", "bf16", "float32")]
    pattern = "|".join(name for _, name, _ in cases)
    report = json.loads(output(
        MICROBENCH, f"--benchmark_filter=BM_Product/({pattern})/inputs:576/outputs:3072/rows:(1|4|8|32|256)$",
        "--benchmark_repetitions=5", "--benchmark_min_time=0.2", "--benchmark_report_aggregates_only=true",
        "--benchmark_format=json"))
    peak = peaks()
    lines = ["| 576 x 3,072 weights | rows | read GB/s | of memory's | T ops/s | of the units' |", "|---|---:|---:|---:|---:|---:|"]
    for result in report["benchmarks"]:
        if result["aggregate_name"] != "median":
            continue
        label, unit = next((label, unit) for label, name, unit in cases if f"/{name}/" in result["run_name"])
        read, ops = result["weights"] / 1e9, result["ops"] / 1e12
        lines.append(f"| {label} | {result['run_name'].rsplit(':', 1)[1]} | {read:.1f} | {100 * read / peak['read']:.0f} % | "
                     f"{ops:.3f} | {100 * ops / peak[unit]:.0f} % of {unit} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="path of a llama-server binary")
    parser.add_argument("--batched-bench", help="path of a llama-batched-bench binary")
    parser.add_argument("--large", help="a larger model than the default one, for --batched-bench too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="batching,batched,interference,kernels,large,peer,roofline,sim,speculation",
                        help="names, separated by commas")
    arguments = parser.parse_args()
    wanted = set(arguments.only.split(","))
    if not arguments.peer:
        wanted.discard("peer")
    if not arguments.batched_bench:
        wanted.discard("batched")
    if not arguments.batched_bench or not arguments.large:
        wanted.discard("large")
    if not MICROBENCH.exists():
        wanted.discard("kernels")  # `make bench` builds it
    if "kernels" in wanted:
        put("kernels", kernel_table())
    if "interference" in wanted:
        put("interference", measured(output(
            SKEIN, "bench", "--model", "default", "--prompt-tokens", "128", "-n", "128", "--prompts", "32", "--concurrency",
            "32", "--no-single", "--no-limits", "--interference", "2000", "--rounds", arguments.rounds, "--markdown")))
    in_process = [ROOT / "tools/bench_peer.py", "--batched-bench", arguments.batched_bench, "--rounds", arguments.rounds]
    if "batched" in wanted:
        put("batched", measured(output(*in_process, "--concurrency", "1,2,4,8,32", "--context", "4096")))
    if "large" in wanted:
        put("large", measured(output(*in_process, "--model", arguments.large, "--concurrency", "1,8,32")))
    if "roofline" in wanted:
        put("roofline", measured(output(SKEIN, "bench", "roofline", "--model", "default", "--markdown")))
    if "speculation" in wanted:
        put("speculation", measured(output(
            SKEIN, "bench", "--model", "default", "--speculation", "auto", "--concurrency", "1,32", "-n", "128", "--rounds",
            max(arguments.rounds, 5), "--markdown")))
    if "sim" in wanted:
        put("sim", measured(output(SKEIN, "bench", "sim", "--rate", "2.5", "--requests", "1000", "--markdown")))
    if "batching" in wanted:
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder, "bench.json")
            table = output(SKEIN, "bench", "--model", "default", "--rounds", arguments.rounds, "--markdown", "--save",
                           saved, "--plot", ROOT / "docs/img/bench.svg")
            put("batching", measured(table))
            put("summary", short_table(json.loads(saved.read_text())))
    if "peer" in wanted:
        put("peer", measured(output(ROOT / "tools/bench_peer.py", arguments.peer, "--rounds", arguments.rounds)))
    print(f"figures: {', '.join(sorted(wanted))} measured")


if __name__ == "__main__":
    main()
