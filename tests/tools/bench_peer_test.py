"""tools/bench_peer.py with the real skein on one side. The other side is a script where llama.cpp would be: it notes how it
was called and answers in llama-batched-bench's form, or becomes a second skein that listens where llama-server would."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/apps"), str(ROOT / "tools")]
import peer_common  # noqa: E402
import serving  # noqa: E402

BINARY = pathlib.Path(os.environ.get("SKEIN_TEST_BINARY", ROOT / "build/skein")).resolve()
LOADGEN = ROOT.parent / "shared/tools/loadgen.py"

BATCHED_BENCH = r'''#!/usr/bin/env python3
import json, pathlib, sys
with open(pathlib.Path(__file__).with_suffix(".calls"), "a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
print("some words first")
print(json.dumps({"speed_pp": 10.0, "speed_tg": 2.0}))
'''
LLAMA_SERVER = r'''#!/bin/bash
echo "$*" >> "$(dirname "$0")/calls"
while [ $# -gt 0 ]; do declare "given_${1//-/}=$2"; shift 2; done
exec SKEIN serve --model "$given_m" --port "$given_port" --threads "$given_t" --batch-max-batch-size "$given_np" \
  --max-context $((given_c / given_np)) --state-dir "$(dirname "$0")/state"
'''


def rows_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")][2:]


class BenchPeerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def bench_peer(self, *arguments):
        return subprocess.run([sys.executable, "-B", ROOT / "tools/bench_peer.py", *map(str, arguments), "--skein", BINARY,
                               "--threads", "1"], capture_output=True, text=True, timeout=4 * serving.PATIENCE_S,
                              env=serving.clean_environment())

    @serving.needs_model  # the tiny one answers in the time that a busy machine keeps a thread waiting
    def test_in_process(self):
        peer = self.script("peer", BATCHED_BENCH)
        done = self.bench_peer("--batched-bench", peer, "--model", serving.MODEL, "--concurrency", "1,4", "--rounds", "2",
                               "--prompt-tokens", "16", "--max-tokens", "24", "--prefill", "50", "--context", "64")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = rows_of(done.stdout)
        self.assertEqual([row[0] for row in rows], ["1", "4", "1, prompt of 50", "8, prompts of 64"])
        for row in rows:
            for ours, theirs, ratio, speed, absent in ((1, 2, 3, 2.0, "1, prompt of 50"), (4, 5, 6, 10.0, "8, prompts of 64")):
                if row[0] == absent:
                    self.assertEqual(row[ours:ratio + 1], ["-"] * 3)
                    continue
                median = float(row[ours].split()[0].replace(",", ""))
                self.assertEqual(row[theirs], f"{speed:.1f} ({speed:.1f})")
                self.assertAlmostEqual(float(row[ratio].split("x")[0]), median / speed, delta=0.06)
        calls = [json.loads(line) for line in (self.folder / "peer.calls").read_text().splitlines()]
        # A round more for what the host disturbed is possible.
        self.assertGreaterEqual(len(calls), 2 * 4)
        four = dict(zip(calls[1][::2], calls[1][1::2]))
        self.assertEqual((four["-npp"], four["-ntg"], four["-npl"], four["-c"], four["-t"], four["-tb"]),
                         ("16", "24", "4", "160", "1", "1"))
        self.assertNotIn("-kvu", four)
        self.assertEqual(["-pps" in call for call in calls[:8]], [False, False, False, True] * 2)
        # Whose turn it is first changes.
        order = re.findall(r"^  (skein|llama\.cpp) +batch 4:", done.stderr, re.M)
        self.assertEqual(order[:4], ["skein", "llama.cpp", "llama.cpp", "skein"])

    def test_an_answer_too_short_to_be_together_is_told(self):
        peer = self.script("peer", BATCHED_BENCH)
        done = self.bench_peer("--batched-bench", peer, "--model", serving.tiny_model(self.folder), "--concurrency", "8",
                               "--rounds", "1", "--prompt-tokens", "200", "--max-tokens", "2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--max-tokens is too small", done.stderr)

    @serving.needs_model
    def test_over_http(self):
        server = self.script("llama-server", LLAMA_SERVER.replace("SKEIN", str(BINARY)))
        generators = [[], ["--loadgen", LOADGEN]] if LOADGEN.exists() else [[]]
        for generator in generators:
            out = self.folder / f"out{len(generator)}"
            done = self.bench_peer(server, "--model", serving.MODEL, "--concurrency", "1,2", "--rounds", "1", "--prompts",
                                   "1", "--prompt-tokens", "16", "--max-tokens", "4", "--out", out, *generator)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = rows_of(done.stdout)
            self.assertEqual([row[0] for row in rows], ["1", "2"])
            for row in rows:
                self.assertAlmostEqual(float(row[7][:-1]), float(row[1].split()[0]) / float(row[4].split()[0]), delta=0.06)
                self.assertGreater(float(row[2]), 0)
                self.assertGreater(float(row[5]), 0)
            saved = json.loads((out / "skein.json").read_text())["results"]
            # `bench serve` keeps every place busy for as many requests as asked, the other generator for two rounds.
            self.assertEqual([r["num_requests"] for r in saved], [2, 4] if generator else [1, 2])
            self.assertTrue((out / "peer.svg").exists())

    @serving.needs_model
    def test_chats_of_a_kind_meet_new_servers_in_every_round(self):
        server = self.script("llama-server", LLAMA_SERVER.replace("SKEIN", str(BINARY)))
        done = self.bench_peer(server, "--model", serving.MODEL, "--concurrency", "1", "--rounds", "2", "--max-tokens", "6",
                               "--kind", "quote", "--peer-options", "--spec-type ngram-simple", "--skein-options",
                               "--speculation ngram", "--out", self.folder / "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("up to 6 tokens of quote each", done.stdout)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertGreaterEqual(len(calls), 2)  # a round more for what the host disturbed is possible
        for call in calls:
            self.assertTrue(call.endswith("--spec-type ngram-simple"), call)
        saved = json.loads((self.folder / "out/skein.json").read_text())["results"]
        self.assertEqual([(run["num_requests"], run["total_tokens"]) for run in saved], [(3, 18)])

    def test_nothing_to_measure_is_wrong_usage(self):
        self.assertEqual(self.bench_peer("--rounds", "1").returncode, 2)


class StealTest(unittest.TestCase):
    def test_disturbed_runs_count_only_where_no_others_are(self):
        quiet, noisy = {"steal_percent": 1.4, "x": 1}, {"steal_percent": 1.6, "x": 9}
        self.assertEqual(peer_common.figures([quiet, noisy, noisy], "x"), (1, 1))
        self.assertEqual(peer_common.figures([noisy, noisy], "x"), (9, 9))
        self.assertEqual(peer_common.figures([{"x": 5}, {"x": 1}, {"x": 2}], "x"), (2, 5))

    def test_disturbed_runs_are_made_again(self):
        quiet, noisy = {"steal_percent": 1.4}, {"steal_percent": 1.6}
        measured = {"a": {1: [], 2: [], 3: []}, "b": {1: [], 2: [], 3: []}}
        rounds = []
        for number, cases in peer_common.rounds_of(2, measured):
            rounds.append(cases)
            for case in cases:
                measured["a"][case].append(noisy if case == 3 else quiet)
                measured["b"][case].append(noisy if case == 2 and number == 0 else quiet)
        self.assertEqual(rounds, [[1, 2, 3], [1, 2, 3], [2, 3], [3]])

    def test_steal_is_a_share_of_all_time(self):
        meter = peer_common.StealMeter()
        meter.before = [now - spent for now, spent in zip(meter.ticks(), (10**9, 0, 0, 10**9, 0, 0, 0, 2 * 10**9))]
        self.assertAlmostEqual(meter.percent(), 50, delta=0.01)


if __name__ == "__main__":
    unittest.main()
