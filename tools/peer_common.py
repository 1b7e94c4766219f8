"""What the two modes of bench_peer.py share: what a run was disturbed by, which runs count, how figures are printed."""
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEAL_PERCENT = 1.5


class StealMeter:
    """The share of all CPU time that the host gave to others since this was made."""

    def __init__(self):
        self.before = self.ticks()

    @staticmethod
    def ticks():
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
        return [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]

    def percent(self):
        spent = [after - before for before, after in zip(self.before, self.ticks())]
        return 100 * spent[7] / max(sum(spent), 1)


def clean(runs):
    """Without those that the host disturbed, unless there are no others. A run is a dict with `steal_percent`."""
    quiet = [run for run in runs if run.get("steal_percent", 0) <= STEAL_PERCENT]
    return quiet or runs


def count_disturbed(runs):
    return len([run for run in runs if run.get("steal_percent", 0) > STEAL_PERCENT])


def rounds_of(rounds, measured):
    """-> number and cases of every round. What the host disturbed is measured again, in at most as many rounds more;
    `measured` are the runs so far: program -> case -> list."""
    cases = list(next(iter(measured.values())))
    for number in range(2 * rounds):
        if number >= rounds:
            cases = [case for case in cases
                     if any(len(by_case[case]) - count_disturbed(by_case[case]) < rounds for by_case in measured.values())]
        if not cases:
            return
        say(f"round {number + 1}" + (f" of {rounds}" if number < rounds else ": what was disturbed"))
        yield number, cases


def figures(runs, field, best=max):
    """-> the median of the runs that count, and the best of them"""
    values = [run[field] for run in clean(runs)]
    return statistics.median(values), best(values)


def in_turn(pair, number):
    """Who is first changes from round to round."""
    return pair if number % 2 == 0 else pair[::-1]


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "an unknown CPU"


def heading(model, threads, rounds, what, runs):
    """The lines above a table."""
    lines = [f"{pathlib.Path(model).name} on {threads} threads of {cpu_name()}; {what}, median of {rounds} rounds (best)"]
    if disturbed := count_disturbed(runs):
        lines.append(f"{disturbed} of {len(runs)} runs had more than {STEAL_PERCENT} % of steal; they count only where no "
                     "other is there.")
    return "\n".join(lines)


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"bench_peer: {text}")
