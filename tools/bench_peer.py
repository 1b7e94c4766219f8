#!/usr/bin/env python3
"""Measures skein beside llama.cpp: the same file, threads and prompts, in one run, round by round in alternating order.

  tools/bench_peer.py /path/to/llama-server [--loadgen GENERATOR] [--out FOLDER] [--peer-options "..."]
  tools/bench_peer.py /path/to/llama-server --kind quote --peer-options "--spec-type ngram-simple" [--skein-options "..."]
  tools/bench_peer.py --batched-bench /path/to/llama-batched-bench [--prefill 512] [--context 4096]
  both: [--model M] [--threads N] [--concurrency 1,8,32] [--rounds 5] [--prompt-tokens 128] [--max-tokens 128]
        [--precision default|high]

Over HTTP both servers are up all the time, but the one that is not measured is stopped (SIGSTOP), so that it takes nothing.
No prompt is sent twice. `skein bench serve` drives both with its built-in prompts; or GENERATOR does, a program that takes
--url, --concurrency, --requests, --prompt-tokens, --token-ids, --max-tokens and --seed and prints a JSON object. FOLDER gets
skein.json and llama-server.json, which `skein bench compare` reads, and peer.svg.

--kind sends the chats of one kind of `skein bench --speculation` (chat, edit, quote) once a round. Both servers are new in
every round, and have answered two other requests, so that neither can guess an answer from the same one before.

In process, `skein bench` and llama-batched-bench each compute a batch of prompts and then decode it. --prefill adds a row
for one prompt of that length, --context one for decoding behind prompts of that length, 8 at once.

The tables are Markdown: the median of the rounds, and the best one in brackets. Runs in which the host gave more than
1.5 % of the time to others are made again, in at most as many rounds more, and left out where others remain.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys

from peer_batched import compare_in_process
from peer_common import ROOT
from peer_servers import KINDS, compare_servers


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_server", nargs="?", help="path of a llama-server binary")
    parser.add_argument("--batched-bench", help="path of a llama-batched-bench binary")
    parser.add_argument("--skein", default=str(ROOT / "build/skein"), help="path of the skein binary")
    parser.add_argument("--model", help="GGUF file; the default model if absent")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--precision", choices=("default", "high"), default="default", help="skein's")
    parser.add_argument("--concurrency", default="1,8,32", help="levels, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=128, help="of every prompt that is not built in")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--prefill", type=int, default=512, help="in process: length of one prompt alone; 0: no such row")
    parser.add_argument("--context", type=int, default=0, help="in process: length of 8 prompts at once; 0: no such row")
    parser.add_argument("--loadgen", help="over HTTP: generator that drives both servers")
    parser.add_argument("--prompts", type=int, default=20, help="over HTTP: built-in prompts at every level, at least")
    parser.add_argument("--kind", choices=KINDS, help="over HTTP: chats of this kind instead of the built-in prompts")
    parser.add_argument("--skein-options", default="", help="over HTTP: more options of `skein serve`")
    parser.add_argument("--peer-options", default="", help="over HTTP: more options of llama-server")
    parser.add_argument("--slot-tokens", type=int, default=1024, help="over HTTP: tokens of a request, prompt and answer")
    parser.add_argument("--out", type=pathlib.Path, help="over HTTP: folder for the JSON files and the plot")
    arguments = parser.parse_args()
    if not arguments.llama_server and not arguments.batched_bench:
        parser.error("neither a llama-server nor --batched-bench is given")
    if arguments.kind and arguments.loadgen:
        parser.error("--kind and --loadgen exclude each other")
    return arguments


def main():
    arguments = parse_arguments()
    # As Ctrl-C: a server that is stopped would not end by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    model = arguments.model or subprocess.run([ROOT / "tools/get_model.sh"], stdout=subprocess.PIPE, text=True,
                                              check=True).stdout.strip()
    levels = [int(level) for level in arguments.concurrency.split(",")]
    if arguments.batched_bench:
        compare_in_process(arguments, model, levels)
    if arguments.llama_server:
        compare_servers(arguments, model, levels)


if __name__ == "__main__":
    main()
