#!/usr/bin/env python3
"""Measures skein beside llama.cpp's server: the same file, threads and prompts, one load generator, in one run.

  tools/bench_peer.py /path/to/llama-server [--model M] [--threads N] [--concurrency 1,8,32] [--rounds 3]
                      [--max-tokens 128] [--context 1024] [--out FOLDER]

Both servers are up all the time, but the one that is not measured is stopped (SIGSTOP), so that it takes nothing. Every
round measures both, level by level, in alternating order, with prompts that neither has seen. The table on stdout is
Markdown: the median of the rounds, and the best one in brackets. Rounds in which the host gave more than 1.5 % of the
time to others are marked, and left out where others remain. FOLDER gets skein.json and llama-server.json, which
`skein bench compare` reads, and peer.svg.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEAL_PERCENT = 1.5
START_S = 300


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_server", help="path of a llama-server binary")
    parser.add_argument("--skein", default=str(ROOT / "build/skein"), help="path of the skein binary")
    parser.add_argument("--model", help="GGUF file; the default model if absent")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--concurrency", default="1,8,32", help="levels, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=20, help="requests at every level, at least")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--context", type=int, default=1024, help="tokens of a request, prompt and answer")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the JSON files and the plot")
    return parser.parse_args()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server that is stopped except while it is measured."""

    def __init__(self, name, line, port, log):
        self.name, self.port = name, port
        self.process = subprocess.Popen([str(word) for word in line], stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > until:
                last = pathlib.Path(log.name).read_text(errors="replace").splitlines()[-20:]
                self.process.kill()
                sys.exit("\n".join([*last, f"bench_peer: {name} did not start"]))
            time.sleep(0.2)
        self.pause()

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.go_on()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def measure(arguments, server, level, first_prompt):
    server.go_on()
    line = [arguments.skein, "bench", "serve", "--url", f"http://127.0.0.1:{server.port}", "--concurrency", level,
            "--prompts", arguments.prompts, "--max-tokens", arguments.max_tokens, "--first-prompt", first_prompt,
            "--json"]
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, text=True)
    server.pause()
    if done.returncode != 0:
        sys.exit(f"bench_peer: measuring {server.name} at {level} failed")
    report = json.loads(done.stdout)
    result = report["results"][0]
    if result["failed_requests"]:
        sys.exit(f"bench_peer: {server.name} failed {result['failed_requests']} requests at {level}")
    print(f"  {server.name:<13} {level:>3} at once: {result['tokens_per_second']:8.1f} tokens/s, "
          f"steal {result.get('steal_percent', 0):.1f} %", file=sys.stderr)
    return report


def clean(reports):
    """Without those that the host disturbed, unless there are no others."""
    quiet = [r for r in reports if r["results"][0].get("steal_percent", 0) <= STEAL_PERCENT]
    return quiet or reports


def median_report(reports):
    ordered = sorted(clean(reports), key=lambda r: r["results"][0]["tokens_per_second"])
    return ordered[(len(ordered) - 1) // 2]


def figures(reports, field, best=max):
    values = [r["results"][0][field] for r in clean(reports)]
    return statistics.median(values), best(values)


def table(levels, measured):
    names = list(measured)
    lines = ["| requests at once | " + " | ".join(
        f"{name} tokens/s | {name} first token ms | {name} between ms" for name in names) + " | ratio of tokens/s |",
             "|---|" + "---:|" * (3 * len(names) + 1)]
    disturbed = 0
    for level in levels:
        cells = []
        for name in names:
            reports = measured[name][level]
            disturbed += len(reports) - len([r for r in reports
                                             if r["results"][0].get("steal_percent", 0) <= STEAL_PERCENT])
            speed, best = figures(reports, "tokens_per_second")
            cells.append(f"{speed:.1f} ({best:.1f})")
            cells.append("{:.0f}".format(figures(reports, "ttft_p50_ms", min)[0]))
            cells.append("{:.1f}".format(figures(reports, "itl_p50_ms", min)[0]))
        ours, theirs = (figures(measured[name][level], "tokens_per_second")[0] for name in names)
        lines.append(f"| {level} | " + " | ".join(cells) + f" | {ours / theirs:.2f}x |")
    return "\n".join(lines), disturbed


def save(folder, name, levels, reports):
    """One file that `skein bench compare` takes: the median round of every level."""
    chosen = [median_report(reports[level]) for level in levels]
    whole = dict(chosen[0], results=[report["results"][0] for report in chosen])
    path = folder / f"{name}.json"
    path.write_text(json.dumps(whole, indent=2) + "\n")
    return path


def main():
    arguments = parse_arguments()
    model = arguments.model or subprocess.run([ROOT / "tools/get_model.sh"], stdout=subprocess.PIPE, text=True,
                                              check=True).stdout.strip()
    levels = [int(level) for level in arguments.concurrency.split(",")]
    slots = max(levels)
    with tempfile.TemporaryDirectory(prefix="skein-peer-") as scratch:
        folder = arguments.out or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        servers = []
        try:
            port = free_port()
            with open(pathlib.Path(scratch, "skein.log"), "w") as log:
                servers.append(Server("skein", [
                    arguments.skein, "serve", "--model", model, "--port", port, "--threads", arguments.threads,
                    "--batch-max-batch-size", slots, "--max-context", arguments.context, "--state-dir", scratch,
                    "--no-log-requests"], port, log))
            port = free_port()
            # Its context is that of all slots together; -np given, each slot has its own part of it.
            with open(pathlib.Path(scratch, "llama-server.log"), "w") as log:
                servers.append(Server("llama-server", [
                    arguments.llama_server, "-m", model, "--host", "127.0.0.1", "--port", port, "-t", arguments.threads,
                    "-np", slots, "-c", arguments.context * slots], port, log))
            measured = {server.name: {level: [] for level in levels} for server in servers}
            first_prompt = 0
            for number in range(arguments.rounds):
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
                for level in levels:
                    for server in servers if number % 2 == 0 else servers[::-1]:
                        measured[server.name][level].append(measure(arguments, server, level, first_prompt))
                    first_prompt += max(level, arguments.prompts) + level
        finally:
            for server in servers:
                server.end()
        text, disturbed = table(levels, measured)
        machine = measured["skein"][levels[0]][0]["machine"]
        print(f"{pathlib.Path(model).name} on {arguments.threads} threads of {machine['cpu']}; "
              f"{arguments.max_tokens} tokens each, median of {arguments.rounds} rounds (best)")
        if disturbed:
            print(f"{disturbed} measurements had more than {STEAL_PERCENT} % of steal; they count only where no other "
                  "is there.")
        print(f"\n{text}")
        paths = [save(folder, name, levels, measured[name]) for name in ("llama-server", "skein")]
        if arguments.out:
            subprocess.run([arguments.skein, "bench", "compare", *paths, "--plot", folder / "peer.svg"], check=True,
                           stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
