#!/usr/bin/env python3
"""What requests without a form spend on forms: the share of instructions in functions of forms, counted by callgrind.

  form_instructions.py BINARY MODEL

Valgrind knows AVX2 and nothing later, so those kernels run, on one thread. Fails above 0.1 %."""
import re
import subprocess
import sys
import tempfile

MOST_PERCENT = 0.1
FORMS = re.compile(r"skein::(grammar|dialog)::|skein::(FormPlace|FormCache|FormMeter|Form\b|SlowDraws|LiveForms)|"
                   r"RequestSampler::(draw_in_form|draw_within_work|draw_at|draw_unmasked|allowed_by|mask_at|draw_beside)")


def count(binary, model):
    """Instructions in all, and by function."""
    with tempfile.NamedTemporaryFile(suffix=".callgrind") as out:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", binary, "run", "--model", model, "--prompt",
             "Once upon a time", "-n", "24", "--threads", "1", "--cpu-isa", "avx2"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"callgrind: {done.stderr[-2000:]}")
        shown = subprocess.run(["callgrind_annotate", "--threshold=100", "--show-percs=no", out.name], capture_output=True, text=True, check=True)
    total, functions = 0, {}
    for line in shown.stdout.splitlines():
        if found := re.match(r"\s*([\d,]+) {2}(.*)$", line):
            instructions = int(found[1].replace(",", ""))
            if found[2].startswith("PROGRAM TOTALS"):
                total = instructions
            else:
                functions[found[2]] = functions.get(found[2], 0) + instructions
    return total, functions


def main():
    total, functions = count(*sys.argv[1:3])
    counted = sum(functions.values())
    if total < 10**8 or counted < 0.99 * total:
        sys.exit(f"callgrind: {counted} of {total} instructions are told by function")
    forms = {name: cost for name, cost in functions.items() if FORMS.search(name)}
    percent = 100 * sum(forms.values()) / total
    for name, cost in sorted(forms.items(), key=lambda item: -item[1])[:5]:
        print(f"  {cost} {name[:150]}")
    print(f"forms: {sum(forms.values())} of {total} instructions of a request without a form are in functions of forms "
          f"({percent:.5f} %, at most {MOST_PERCENT})")
    sys.exit(percent > MOST_PERCENT)


if __name__ == "__main__":
    main()
