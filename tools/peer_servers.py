"""The HTTP mode of bench_peer.py: `skein serve` beside llama-server, one generator for both."""
import contextlib
import json
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from peer_common import StealMeter, clean, fail, figures, heading, in_turn, markdown, rounds_of, say

START_S = 300
KINDS = {"chat": 4, "edit": 3, "quote": 3}  # as many chats as each has
WARM_UP_TOKENS = 32


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server that is stopped except while it is measured."""

    def __init__(self, name, line, port, log):
        self.name, self.port = name, port
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([str(word) for word in line], stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > until:
                last = pathlib.Path(log.name).read_text(errors="replace").splitlines()[-20:]
                self.process.kill()
                say("\n".join(last))
                fail(f"{name} did not start")
            time.sleep(0.2)
        self.pause()

    def ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def first_model(self):
        with urllib.request.urlopen(f"{self.url}/v1/models", timeout=10) as answer:
            return json.load(answer)["data"][0]["id"]

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


def start_servers(arguments, model, slots, scratch):
    def start(name, line, port):
        with open(pathlib.Path(scratch, f"{name}.log"), "w") as log:
            return Server(name, line, port, log)

    port = free_port()
    yield start("skein", [
        arguments.skein, "serve", "--model", model, "--port", port, "--threads", arguments.threads, "--precision",
        arguments.precision, "--batch-max-batch-size", slots, "--max-context", arguments.slot_tokens, "--state-dir", scratch,
        "--no-log-requests", *shlex.split(arguments.skein_options)], port)
    port = free_port()
    # Its context is that of all slots together; -np given, each slot has its own part of it.
    yield start("llama-server", [
        arguments.llama_server, "-m", model, "--host", "127.0.0.1", "--port", port, "-t", arguments.threads, "-np", slots,
        "-c", arguments.slot_tokens * slots, *shlex.split(arguments.peer_options)], port)


@contextlib.contextmanager
def running_servers(arguments, model, levels):
    servers = []
    with tempfile.TemporaryDirectory(prefix="skein-peer-") as scratch:
        try:
            for server in start_servers(arguments, model, max(levels), scratch):
                servers.append(server)
            yield servers
        finally:
            for server in servers:
                server.end()


def run_bench_serve(arguments, server, level, first_prompt):
    """-> what `skein bench serve` found, in the form of its JSON's results"""
    kind = ["--kind", arguments.kind, "--prompts", KINDS[arguments.kind]] if arguments.kind else ["--prompts", arguments.prompts]
    line = [arguments.skein, "bench", "serve", "--url", server.url, "--concurrency", level, *kind,
            "--max-tokens", arguments.max_tokens, "--first-prompt", first_prompt, "--json"]
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        fail(f"measuring {server.name} at {level} failed")
    return json.loads(done.stdout)["results"][0]


def run_loadgen(arguments, server, level, first_prompt):
    """The same of a generator that prints one JSON object of its own form."""
    line = [sys.executable, arguments.loadgen, "--url", server.url, "--model", server.first_model(), "--concurrency", level,
            "--requests", 2 * level, "--prompt-tokens", arguments.prompt_tokens, "--max-tokens", arguments.max_tokens,
            "--token-ids", "1000:16000", "--seed", first_prompt + 1]
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, text=True)
    if not done.stdout.strip():
        fail(f"measuring {server.name} at {level} failed")
    found = json.loads(done.stdout)
    if found["errors"]:
        say(found["error_sample"])
    return {"mode": "serve", "concurrency": level, "num_requests": found["requests"], "failed_requests": found["errors"],
            "total_tokens": found["output_tokens"], "prompt_tokens": found["prompt_tokens"],
            "total_time_seconds": found["wall_s"], "tokens_per_second": found["output_tok_s"],
            "p50_latency_ms": found["e2e_ms"]["p50"], "p99_latency_ms": found["e2e_ms"]["p99"],
            "ttft_p50_ms": found["ttft_ms"]["p50"], "ttft_p99_ms": found["ttft_ms"]["p99"],
            "itl_p50_ms": found["itl_ms"]["p50"], "itl_p99_ms": found["itl_ms"]["p99"]}


def warm_up(arguments, server):
    server.go_on()
    subprocess.run([str(word) for word in [
        arguments.skein, "bench", "serve", "--url", server.url, "--concurrency", 1, "--prompts", 2, "--max-tokens",
        WARM_UP_TOKENS, "--json"]], stdout=subprocess.DEVNULL, check=True)
    server.pause()


def measure(arguments, server, level, first_prompt):
    server.go_on()
    meter = StealMeter()
    result = (run_loadgen if arguments.loadgen else run_bench_serve)(arguments, server, level, first_prompt)
    result["steal_percent"] = meter.percent()
    server.pause()
    if result["failed_requests"]:
        fail(f"{server.name} failed {result['failed_requests']} requests at {level}")
    say(f"  {server.name:<13} {level:>3} at once: {result['tokens_per_second']:8.1f} tokens/s, first token "
        f"{result['ttft_p50_ms']:.0f} ms, steal {result['steal_percent']:.1f} %")
    return result


def table(levels, measured):
    names = list(measured)
    header = ["requests at once"]
    for name in names:
        header += [f"{name} tokens/s", f"{name} first token p50 ms", f"{name} between p50 ms"]
    rows = []
    for level in levels:
        row = [str(level)]
        for name in names:
            speed, best = figures(measured[name][level], "tokens_per_second")
            row += [f"{speed:.1f} ({best:.1f})", f"{figures(measured[name][level], 'ttft_p50_ms', min)[0]:.0f}",
                    f"{figures(measured[name][level], 'itl_p50_ms', min)[0]:.1f}"]
        for field in ("tokens_per_second", "ttft_p50_ms"):
            ours, theirs = (figures(measured[name][level], field)[0] for name in names)
            row.append(f"{ours / theirs:.2f}x")
        rows.append(row)
    return markdown(header + ["ratio of tokens/s", "of first token"], rows)


def save(folder, name, model, levels, runs):
    """One file that `skein bench compare` takes: the median round of every level."""
    chosen = []
    for level in levels:
        ordered = sorted(clean(runs[level]), key=lambda run: run["tokens_per_second"])
        chosen.append(ordered[(len(ordered) - 1) // 2])
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"model": {"name": pathlib.Path(model).name}, "results": chosen}, indent=2) + "\n")
    return path


def measure_rounds(arguments, servers_of_round, levels):
    measured = {name: {level: [] for level in levels} for name in ("skein", "llama-server")}
    first_prompt = 0
    for number, wanted in rounds_of(arguments.rounds, measured):
        with servers_of_round() as servers:
            for level in wanted:
                for server in in_turn(servers, number):
                    measured[server.name][level].append(measure(arguments, server, level, first_prompt))
                first_prompt += max(level, arguments.prompts) + level
    return measured


@contextlib.contextmanager
def new_servers(arguments, model, levels):
    """Of one round: with nothing to remember but what they warmed up with."""
    with running_servers(arguments, model, levels) as servers:
        for server in servers:
            warm_up(arguments, server)
        yield servers


def compare_servers(arguments, model, levels):
    if arguments.kind:
        measured = measure_rounds(arguments, lambda: new_servers(arguments, model, levels), levels)
    else:
        with running_servers(arguments, model, levels) as servers:
            measured = measure_rounds(arguments, lambda: contextlib.nullcontext(servers), levels)
    runs = [run for by_level in measured.values() for some in by_level.values() for run in some]
    prompts = f"{arguments.prompt_tokens} tokens of prompt, " if arguments.loadgen else ""
    tokens = f"up to {arguments.max_tokens} tokens of {arguments.kind}" if arguments.kind else f"{arguments.max_tokens} tokens"
    print(heading(model, arguments.threads, arguments.rounds, f"{prompts}{tokens} each", runs))
    print(f"\n{table(levels, measured)}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        paths = [save(arguments.out, name, model, levels, measured[name]) for name in ("llama-server", "skein")]
        subprocess.run([arguments.skein, "bench", "compare", *paths, "--plot", arguments.out / "peer.svg"], check=True,
                       stdout=subprocess.DEVNULL)
