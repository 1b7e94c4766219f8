#!/usr/bin/env python3
"""Fails calls of a real server into the system, one point after the other, and holds it to its word.

    faults.py --binary build/skein [--points 2000] [--seed 1] [--jobs 2] [--seconds 600]
    faults.py --binary build/skein --only chat:alloc:17:1:12

A point is a phase (what the server is asked), a class of calls (memory, disk, network, threads ...), the
number of the first call that fails, how many fail, and with which errno. After each one the server must be
alive, the request must have got its answer, a clean error or a visible cut, the next one its right answer,
the KV pool and the list of requests must be empty, the database sound and nothing lost that was
acknowledged. The last line is the figure; the exit status is 0 only if it says zeros.
"""
import argparse
import collections
import os
import pathlib
import queue
import random
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from phases import PHASES, Chat  # noqa: E402
from shim import ABORTING, CLASSES, FAILING, Shim, is_libc_crash, symbolized  # noqa: E402
from target import Broken, Target, check_database  # noqa: E402

Point = collections.namedtuple("Point", "phase kind first count error")
BURSTS = (1, 1, 1, 4, 64)  # most points are one call; a machine that is short of something stays so for a while
# `operator new` tries 20 times (base/patience.h): with one failure more it throws, and the next ones go well.
ALLOC_BURSTS = (1, 24, 64, 24)
KINDS = ("crashes", "lost lines", "corrupt databases")


class Finding:
    def __init__(self, point, error, stacks, messages):
        self.point, self.kind, self.text = point, error.kind, str(error)
        self.fault, self.crash = stacks.get("fault", []), stacks.get("crash", [])
        self.in_libc = is_libc_crash(self.crash)
        self.messages = messages

    def key(self):
        """Findings at one place are one."""
        return self.text[:60], tuple(frame.split("[")[0] for frame in (self.crash or self.fault)[:12])


class Worker:
    """One server with one shim; runs a point at a time."""

    def __init__(self, options, number):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"skein-faults-{number}-"))
        self.shim = Shim(options.shim, self.folder)
        self.target = Target(options.binary, self.shim, self.folder)
        self.phases = {phase.name: phase() for phase in PHASES}
        self.probe = Chat()
        self.mode = ABORTING if options.plant else FAILING
        self.ready()

    def ready(self):
        self.target.kill()
        self.shim.reset()
        self.target.forgive_models()
        self.target.start()
        self.probe.prepare(self.target)

    def count(self, name):
        """How many calls of each class the phase makes: the points it has."""
        phase = self.phases[name]
        most = collections.Counter()
        for _ in range(2):
            phase.prepare(self.target)
            self.shim.start_counting()
            phase.act(self.target)
            self.shim.disarm()
            for kind, calls in self.shim.calls().items():
                most[kind] = max(most[kind], calls)
            phase.settle(self.target)
        return most

    def run(self, point):
        """(whether the call was reached, the finding or None)."""
        phase, target = self.phases[point.phase], self.target
        try:
            phase.prepare(target)
            self.shim.arm(point.kind, point.first, point.count, point.error, self.mode)
            try:
                phase.act(target)
            finally:
                self.shim.disarm()
            self.check_alive(point)
            phase.settle(target)
            self.check()
            self.check_alive(point)
        except Broken as error:
            if self.shim.get("crashed"):
                error = Broken(f"signal {self.shim.get('crashed')} in {point.phase}")
            elif not target.is_alive() and point.phase != "drain":
                error = Broken(f"the process is gone in {point.phase}; {error}")
            finding = Finding(point, error, self.shim.stacks(), target.messages())
            self.ready()
            return True, finding
        return self.shim.get("failed") > 0, None

    def check_alive(self, point):
        if self.shim.get("crashed") or (point.phase not in ("start", "drain") and not self.target.is_alive()):
            raise Broken("the process ended")

    def check(self):
        self.probe.settle(self.target)
        self.target.wait_for(self.target.is_idle, "an empty pool and no live requests")
        check_database(self.target.state / "skein.db")

    def close(self):
        self.target.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def places(rng, calls, wanted):
    """Numbers of calls: the first ones, then one out of each of as many equal parts of the rest."""
    if wanted >= calls:
        return list(range(1, calls + 1))
    first = (wanted + 1) // 2
    rest = wanted - first
    bounds = [first + (calls - first) * i // rest for i in range(rest + 1)] if rest else []
    return [*range(1, first + 1), *(rng.randint(a + 1, b) for a, b in zip(bounds, bounds[1:]) if b > a)]


def plan(rng, counts, wanted, turn):
    """About as many points as wanted, over all phases and classes that have any."""
    shares = {phase.name: phase.share for phase in PHASES if phase.name in counts}
    points = []
    for name, share in shares.items():
        kinds = {kind: calls for kind, calls in counts[name].items() if calls}
        room = wanted * share / sum(shares.values())
        # The small classes whole as far as a half goes; memory, which has the most calls, gets the rest.
        small = sorted((calls, kind) for kind, calls in kinds.items() if kind != "alloc")
        taken = 0
        for at, (calls, kind) in enumerate(small):
            share_of = max(1, int((room / 2 - taken) / (len(small) - at)))
            points += make(rng, name, kind, calls, share_of, turn)
            taken += min(calls, share_of)
        points += make(rng, name, "alloc", kinds.get("alloc", 0), max(1, round(room - taken)), turn)
    return points


def make(rng, name, kind, calls, wanted, turn):
    errors = CLASSES[kind]
    bursts = ALLOC_BURSTS if kind == "alloc" else BURSTS
    for at, first in enumerate(places(rng, calls, wanted)):
        yield Point(name, kind, first, bursts[(at + turn) % len(bursts)], errors[(at // 2 + turn) % len(errors)])


class Run:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.began = time.monotonic()
        self.workers = [Worker(options, i) for i in range(options.jobs)]
        self.hits = collections.Counter()
        self.findings = []
        self.lock = threading.Lock()

    def time_left(self):
        return self.began + self.options.seconds - time.monotonic()

    def count(self):
        names = [phase.name for phase in PHASES if not self.options.phases or phase.name in self.options.phases]
        counts = {name: self.workers[0].count(name) for name in names}
        for name, calls in counts.items():
            print(f"{name}: " + ", ".join(f"{n} {kind}" for kind, n in calls.items() if n), flush=True)
        return counts

    def run(self, points):
        waiting = queue.SimpleQueue()
        for point in points:
            waiting.put(point)
        threads = [threading.Thread(target=self.work, args=(worker, waiting)) for worker in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self, worker, waiting):
        while self.time_left() > 0 and len(self.findings) < self.options.give_up:
            try:
                point = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            hit, finding = worker.run(point)
            with self.lock:
                self.hits[point.phase] += hit
                if finding is not None:
                    self.findings.append(finding)
                    self.show(finding)
                if self.options.verbose:
                    print(f"{self.name(point)} {'hit' if hit else 'missed'} {time.monotonic() - began:.2f} s", flush=True)

    @staticmethod
    def name(point):
        return ":".join(map(str, point))

    def show(self, finding):
        if sum(finding.key() == other.key() for other in self.findings) > 1:
            return
        print(f"\n{'in libc: ' if finding.in_libc else ''}{finding.kind}: --only {self.name(finding.point)}: "
              f"{finding.text}")
        for title, frames in (("failed call", finding.fault), ("crash", finding.crash)):
            if frames:
                print(f"  {title}:", *symbolized(frames), sep="\n    ")
        print("  log:", *(line[:200] for line in finding.messages.splitlines()[-3:]), sep="\n    ", flush=True)

    def close(self):
        for worker in self.workers:
            worker.close()


def default_shim(binary):
    folder = pathlib.Path(binary).resolve().parent
    found = [path for path in (folder / "release/tests/faults", folder / "tests/faults") if path.is_dir()]
    return (found or [folder])[0] / "libfault_shim.so"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--shim", help="the library; beside the binary unless given")
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600, help="until it gives up")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="servers at a time")
    parser.add_argument("--phases", nargs="*", help="these alone")
    parser.add_argument("--only", help="one point: phase:class:first:count:errno")
    parser.add_argument("--give-up", type=int, default=100, help="findings after which it stops")
    parser.add_argument("--plant", action="store_true", help="let the chosen calls abort: a test of this test")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.shim = options.shim or default_shim(options.binary)
    if not pathlib.Path(options.shim).exists():
        parser.error(f"{options.shim} is not there: build the target fault_shim, or give --shim")
    return options


def main():
    options = parse()
    if options.only:
        options.points, options.jobs = 1, 1
    run = Run(options)
    try:
        if options.only:
            phase, kind, *numbers = options.only.split(":")
            run.run([Point(phase, kind, *map(int, numbers))])
        else:
            counts = run.count()
            for turn in range(20):
                missing = options.points - sum(run.hits.values())
                if missing <= 0 or run.time_left() <= 0 or len(run.findings) >= options.give_up:
                    break
                run.run(plan(run.rng, counts, missing, turn))
    finally:
        run.close()
    return report(run, options)


def report(run, options):
    points = sum(run.hits.values())
    seconds = time.monotonic() - run.began
    print(", ".join(f"{name} {hits}" for name, hits in run.hits.items()))
    in_libc = sum(finding.in_libc for finding in run.findings)
    print(f"{points} of {options.points} points in {seconds:.0f} s, seed {options.seed}; "
          f"{in_libc} crashes in libc itself, not counted")
    found = collections.Counter(finding.kind for finding in run.findings if not finding.in_libc)
    print(f"faults: {points} points, " + ", ".join(f"{found[kind]} {kind}" for kind in KINDS))
    return 0 if not found and points >= options.points else 1


if __name__ == "__main__":
    sys.exit(main())
