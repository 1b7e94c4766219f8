#!/usr/bin/env python3
"""What a server without --store costs, against another build: CPU time of the same load, in turn, medians.

    tests/fleet/plain_node.py build/skein OTHER [--starts 6] [--options '--kv-events 127.0.0.1:0' --threads engine]

With --options the first is given more options than the other, which may be the same binary: then it is what they cost. Time on the
clock says little on a machine that does other things; what a server computes for a load is told by the kernel. Beside the two runs a
third, which is the other once more: what those two differ by is what such a figure is worth. The last line is the figure; it fails above --most percent (1).
"""
import argparse
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server/batch"))
sys.path.insert(0, str(HERE))
from batch_kill_test import write_tiny_model  # noqa: E402
from fleet_batch_test import Node  # noqa: E402
from fleet_router_test import set_option  # noqa: E402
from fleet_test import Front  # noqa: E402

CLIENTS = 4


def cpu_ms(node, threads):
    """Of all its threads, or of those of a name, which live as long as it does."""
    tasks = [task for task in pathlib.Path(f"/proc/{node.process.pid}/task").iterdir() if (task / "comm").read_text().startswith(threads)]
    assert tasks, f"no thread is called {threads}"
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def load(front, turn, requests):
    """No turn has another's questions: what is asked is neither in the cache nor what it holds already."""
    def client(number):
        for i in range(number, requests, CLIENTS):
            status, _, text = front.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": f"Question {i} of {turn}"}],
                                                                         "max_tokens": 64, "ignore_eos": True, "temperature": 0, "stream": i % 2 == 0})
            assert status == 200, text[:300]

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def compare(options, model, folder):
    """Three processes, in turn -> {name: milliseconds of CPU a request}."""
    folder.mkdir()
    nodes = [Node(binary, model, folder / name, name) for name, binary in (("this", options.binary), ("other", options.other),
                                                                                 ("again", options.other))]
    for node in nodes:
        for name, value in zip(options.serve.split()[::2], options.serve.split()[1::2]):
            set_option(node, name, value)
    nodes[0].command += options.options.split()
    spent = {node.name: [] for node in nodes}
    try:
        for node in nodes:
            node.start()
            load(Front(node.port), "none", options.requests // 3)
        for turn in range(options.rounds):
            for node in nodes[turn % 3:] + nodes[:turn % 3]:
                before = cpu_ms(node, options.threads)
                load(Front(node.port), turn, options.requests)
                spent[node.name].append((cpu_ms(node, options.threads) - before) / options.requests)
    finally:
        for node in nodes:
            node.end()
    return {name: statistics.median(times) for name, times in spent.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("other")
    parser.add_argument("--starts", type=int, default=6, help="two processes of one binary differ, by where their memory lies")
    parser.add_argument("--rounds", type=int, default=6, help="of each start")
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--model", help="instead of a tiny one, whose steps take so little that all else looks large")
    parser.add_argument("--threads", default="", help="count those alone whose names begin so: engine")
    parser.add_argument("--serve", default="", help="options of all")
    parser.add_argument("--options", default="", help="of the first alone")
    parser.add_argument("--most", type=float, default=1.0, help="percent")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="skein-plain-"))
    model = options.model or write_tiny_model(folder / "tiny")
    starts = []
    try:
        for start in range(options.starts):
            starts.append(compare(options, model, folder / f"start{start}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    this, other = (statistics.median(start[name] for start in starts) for name in ("this", "other"))
    pairs, same = (statistics.median(start[name] / start["other"] for start in starts) for name in ("this", "again"))
    spread = max(abs(start["again"] / start["other"] - 1) for start in starts)
    print(f"plain node: {this:.3f} ms of CPU a request, the other {other:.3f} ms; in pairs {100 * (pairs - 1):+.1f} %, the other against "
          f"itself {100 * (same - 1):+.1f} % and at most {100 * spread:.1f} % in a start (medians of {options.starts} starts, each of {options.rounds} rounds of {options.requests} requests)")
    return 0 if 100 * (pairs - 1) <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
