#!/usr/bin/env python3
"""What the largest forms take (G6): CPU time and memory of `skein grammar check` from a form's text to its first mask, less what an empty form takes.

  large_forms.py BINARY [VOCABULARY]

VOCABULARY is as `--vocab` takes it, or `default`, the default model's; without one, bytes are the tokens. The forms are those of serve_hostile_forms_test.py and some of exactly 1 MiB.
Fails above 250 ms and 64 MiB."""
import json
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile


def measure(orders):
    """Starts what it is told to, one after the other, and says what each took: status, CPU milliseconds and MiB.

    In a process that is forked before there are large texts: what a child takes is counted from what its parent has."""
    null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_WRONLY, 0) for number in (1, 2)]
    while command := orders.recv():
        _, status, used = os.wait4(os.posix_spawn(command[0], command, dict(os.environ), file_actions=null), 0)
        orders.send((os.waitstatus_to_exitcode(status), 1000 * (used.ru_utime + used.ru_stime), used.ru_maxrss / 1024))


ORDERS, THEIRS = multiprocessing.Pipe()
multiprocessing.get_context("fork").Process(target=measure, args=(THEIRS,), daemon=True).start()
os.environ["SKEIN_TEST_BINARY"] = sys.argv[1]
from serve_hostile_forms_test import HOSTILE  # noqa: E402

MOST_MS, MOST_MIB = 250, 64
MIB = 1 << 20
FLAGS = {"guided_json": "--schema", "json_schema": "--schema", "guided_regex": "--regex", "grammar": "--gbnf", "guided_grammar": "--lark"}


def filled(make):
    """The largest of a kind that still has 1 MiB."""
    low, high = 1, MIB
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(json.dumps(make(middle))) <= MIB else (low, middle - 1)
    return json.dumps(make(low))


def of_1_mib():
    rng = random.Random(17)
    words = ["".join(rng.choice("abcdefghij ") for _ in range(12)) for _ in range(80_000)]
    for what, make in (
            ("random enum", lambda n: {"enum": words[:min(n, len(words))]}),
            ("numbers", lambda n: {"enum": list(range(n))}),
            ("properties", lambda n: {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": i} for i in range(min(n, 9000))}}),
            ("required ones", lambda n: {"type": "object", "required": [f"p{i}" for i in range(min(n, 9000))],
                                         "properties": {f"p{i}": {"type": "integer", "minimum": i} for i in range(min(n, 9000))}}),
            ("alternatives", lambda n: {"anyOf": [{"type": "string", "pattern": f"^{word[:6]}[a-z]*$"} for word in words[:min(n, 256)]]}),
            ("patterns", lambda n: {"type": "object", "patternProperties": {f"^{word}": {} for word in words[:min(n, 200)]}}),
            ("prefix items", lambda n: {"type": "array", "prefixItems": [{"const": word} for word in words[:min(n, 20_000)]]}),
            ("descriptions", lambda n: {"type": "object", "properties": {"a": {"description": "x" * n}}}),
            ("references", lambda n: {"$defs": {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(n)} | {f"d{n}": {}},
                                      "$ref": "#/$defs/d0"})):
        yield what, "--schema", filled(make)
    yield "a wide regex", "--regex", "|".join(words)[:65_000]
    yield "a GBNF grammar of rules", "--gbnf", "root ::= r0\n" + "".join(f'r{i} ::= "{i}" r{i + 1} | "x"\n' for i in range(40_000))[:MIB - 100] + "\n"


def hostile():
    for what, body, _ in HOSTILE:
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            continue
        for name, flag in FLAGS.items():
            if name in fields:
                yield what, flag, fields[name] if isinstance(fields[name], str) else json.dumps(fields[name])


def usage(binary, flag, path, texts, vocabulary):
    ORDERS.send([binary, "grammar", "check", "--trace", flag, str(path), "--texts", str(texts), *vocabulary])
    return ORDERS.recv()


def main():
    binary = os.path.abspath(sys.argv[1])
    vocabulary = ()
    if len(sys.argv) > 2:
        vocabulary = ("--model", "default") if sys.argv[2] == "default" else ("--vocab", sys.argv[2])
    worst_ms, worst_mib, count, taken = (0, ""), (0, ""), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path, texts = pathlib.Path(folder, "form"), pathlib.Path(folder, "texts.jsonl")
        texts.write_text('{"text": ""}\n')
        path.write_text("{}")
        empty = [usage(binary, "--schema", path, texts, vocabulary) for _ in range(5)]
        assert all(code == 0 for code, _, _ in empty), empty
        base_ms, base_mib = (min(column) for column in list(zip(*empty))[1:])
        for what, flag, text in (*hostile(), *of_1_mib()):
            path.write_text(text)
            runs = [usage(binary, flag, path, texts, vocabulary) for _ in range(2)]
            assert all(code in (0, 1) for code, _, _ in runs), (what, runs)
            ms, mib = min(run[1] for run in runs) - base_ms, min(run[2] for run in runs) - base_mib
            worst_ms, worst_mib = max(worst_ms, (ms, what)), max(worst_mib, (mib, what))
            count, taken = count + 1, taken + (runs[0][0] == 0)
            if ms > MOST_MS / 2 or mib > MOST_MIB / 2:
                print(f"  {what} ({len(text)} bytes): {ms:.0f} ms, {mib:.0f} MiB, {'taken' if runs[0][0] == 0 else 'refused'}")
    print(f"large forms: {count}, of which {taken} are taken; the most CPU time {worst_ms[0]:.0f} ms ({worst_ms[1]}), the most memory "
          f"{worst_mib[0]:.0f} MiB ({worst_mib[1]}); at most {MOST_MS} and {MOST_MIB}")
    sys.exit(worst_ms[0] > MOST_MS or worst_mib[0] > MOST_MIB)


if __name__ == "__main__":
    main()
