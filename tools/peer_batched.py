"""The in-process mode of bench_peer.py: `skein bench` beside llama-batched-bench."""
import dataclasses
import json
import subprocess

from peer_common import StealMeter, fail, figures, heading, in_turn, markdown, rounds_of, say

PATIENCE_S = 3600
STEP_TOKENS = 256  # of skein's steps, unless told otherwise
CONTEXT_BATCH = 8
STEPS_TOGETHER = 32


@dataclasses.dataclass(frozen=True)
class Case:
    """So many sequences at once, each with a prompt of its own."""
    name: str
    batch: int
    prompt_tokens: int
    max_tokens: int
    decode: bool = True  # what it is about: the speed of decoding,
    prefill: bool = True  # that of prompts, or both


def cases_of(arguments, levels):
    cases = [Case(str(level), level, arguments.prompt_tokens, arguments.max_tokens) for level in levels]
    if arguments.prefill:
        cases.append(Case(f"1, prompt of {arguments.prefill}", 1, arguments.prefill, 2, decode=False))
    if arguments.context:
        # Prompts are computed one after the other, and the first must not be done before the last has begun to answer.
        steps = -(-CONTEXT_BATCH * arguments.context // STEP_TOKENS)
        cases.append(Case(f"{CONTEXT_BATCH}, prompts of {arguments.context}", CONTEXT_BATCH, arguments.context,
                          steps + STEPS_TOGETHER, prefill=False))
    return cases


def output_of(name, line):
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S)
    if done.returncode != 0:
        fail(f"{name} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def run_skein(arguments, model, case):
    # Where prompts are only the way to a long context, they need not spare the streams that are there already.
    hurry = [] if case.prefill else ["--max-slowdown", 0]
    text = output_of("skein bench", [
        arguments.skein, "bench", "--model", model, "--threads", arguments.threads, "--precision", arguments.precision,
        "--prompt-tokens", case.prompt_tokens, "-n", case.max_tokens, "--prompts", case.batch, "--concurrency", case.batch,
        "--step-tokens", STEP_TOKENS, "--no-single", "--json", *hurry])
    result = json.loads(text)["results"][0]
    if case.decode and not result["decode_tokens_per_second"]:
        fail(f"there is no time in which all {case.batch} sequences decode; --max-tokens is too small")
    return {"decode": result["decode_tokens_per_second"], "prefill": result["prefill_tokens_per_second"],
            "share": result.get("percent_of_limit", 0)}


def run_llama(arguments, model, case):
    # The context is that of all sequences together, each with its own part of it: no -kvu. Where prompts are only the way
    # to a long context it computes one and copies it.
    once = [] if case.prefill else ["-pps"]
    text = output_of("llama-batched-bench", [
        arguments.batched_bench, "-m", model, "-npp", case.prompt_tokens, "-ntg", case.max_tokens, "-npl", case.batch,
        "-c", case.batch * (case.prompt_tokens + case.max_tokens), "-b", 2048, "-ub", 512, "-t", arguments.threads,
        "-tb", arguments.threads, "--output-format", "jsonl", *once])
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        fail(f"llama-batched-bench measured nothing for batch {case.name}")
    result = json.loads(lines[0])
    return {"decode": result["speed_tg"], "prefill": result["speed_pp"]}


PROGRAMS = {"skein": run_skein, "llama.cpp": run_llama}


def measure(arguments, model, name, case):
    meter = StealMeter()
    run = PROGRAMS[name](arguments, model, case)
    run["steal_percent"] = meter.percent()
    say(f"  {name:<9} batch {case.name}: decode {run['decode']:8.1f}/s, prefill {run['prefill']:8.1f}/s, "
        f"steal {run['steal_percent']:.1f} %")
    return run


def both(ours, theirs, field):
    """-> three cells: skein's, llama.cpp's and the ratio, each as the median and, in brackets, the best"""
    (our_median, our_best), (their_median, their_best) = figures(ours, field), figures(theirs, field)
    return [f"{our_median:,.1f} ({our_best:,.1f})", f"{their_median:,.1f} ({their_best:,.1f})",
            f"{our_median / their_median:.2f}x ({our_best / their_best:.2f}x)"]


def table(cases, measured):
    rows = []
    for case in cases:
        ours, theirs = (measured[name][case] for name in PROGRAMS)
        decode = both(ours, theirs, "decode") if case.decode else ["-"] * 3
        prefill = both(ours, theirs, "prefill") if case.prefill else ["-"] * 3
        share = f"{figures(ours, 'share')[0]:.1f} %" if case.decode else "-"
        rows.append([case.name, *decode, *prefill, share])
    return markdown(["batch", "skein decode/s", "llama.cpp decode/s", "ratio", "skein prefill/s", "llama.cpp prefill/s",
                     "ratio", "skein's share of the limit"], rows)


def compare_in_process(arguments, model, levels):
    cases = cases_of(arguments, levels)
    measured = {name: {case: [] for case in cases} for name in PROGRAMS}
    for number, wanted in rounds_of(arguments.rounds, measured):
        for case in wanted:
            for name in in_turn(list(PROGRAMS), number):
                measured[name][case].append(measure(arguments, model, name, case))
    runs = [run for by_case in measured.values() for some in by_case.values() for run in some]
    what = f"{arguments.prompt_tokens} tokens of prompt and {arguments.max_tokens} of answer, {arguments.precision} precision"
    print(heading(model, arguments.threads, arguments.rounds, what, runs))
    print(f"\n{table(cases, measured)}")
