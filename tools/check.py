#!/usr/bin/env python3
"""`make check`: everything beside the tests that a change must pass, part by part, and a table of their times.

    tools/check.py [PART ...]      all parts without a name; --list names them

A part that fails does not keep the others from running. The last line is the figure: `check: N parts, 0 failed`. Logs are in
build/check/. The sanitized parts share two build trees: build/asan (ASan and UBSan, the fuzz targets among it) and build/tsan.
"""
import concurrent.futures
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build/check"
JOBS = os.environ.get("JOBS") or str(os.cpu_count())
FUZZ_INPUTS = 3000  # to each target: its corpus, and what libFuzzer makes of it
FAULT_POINTS = 100  # of the 2,000 of `make faults`
ASAN_TESTS = ["server/http_server_test", "server/server_api_test", "server/server_endpoints_test", "server/metrics_test",
              "server/answer/server_answer_test", "server/batch/server_batch_test", "server/store/store_test",
              "server/auth/auth_test", "grammar/grammar_test", "dialog/dialog_test", "generate/generate_test", "engine/form_test", "server/server_grpc_test"]
ASAN_FLEET = ["fleet/postgres_test"]
TSAN_TESTS = ["base/threads_test", "engine/engine_test", "engine/form_test", "server/http_server_test", "server/metrics_test",
              "server/server_endpoints_test", "server/answer/server_answer_test",
              "server/batch/server_batch_test", "server/store/store_test"]
# Whole servers with the tiny model, by the class or test of a module; what holds memory or time to a figure is not for sanitizers.
ASAN_SERVERS = ["serve_answers_test", "serve_forms_test.AskingTest", "serve_hostile_test", "serve_run_test.StartTest",
                "serve_storm_test.DisconnectTest"]
# vLLM's face by a client that is not ours. Debian's gRPC is not instrumented, so that TSan, to which its locks are nothing, has no part in it.
ASAN_GRPC = "tests/fleet/fleet_grpc_test.py"
TSAN_SERVERS = ["serve_answers_test.JoinedStreamTest", "serve_storm_test.DisconnectTest"]
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0",
              "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}


# Units include sources on purpose. The analyzer takes as long as all other checks together: `make lint` alone has it.
UNIT_CHECKS = "-bugprone-suspicious-include"
QUICK_CHECKS = f"-clang-analyzer-*,{UNIT_CHECKS}"
TIDY_BATCH = 8


class Failed(Exception):
    pass


def run(*command, env=None, cwd=ROOT, stdin=None):
    """A command whose output goes to the part's log."""
    print("+", *command, flush=True)
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **(env or {})}, stdin=stdin)
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with {done.returncode}")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def in_parallel(commands, env=None):
    """Runs commands on all cores; the output of each that fails, whole."""
    def one(command):
        done = subprocess.run([str(word) for word in command], cwd=ROOT, env={**os.environ, **(env or {})},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return command, done

    bad = []
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        for command, done in pool.map(one, commands):
            print(f"+ {' '.join(map(str, command))}: {done.returncode}", flush=True)
            if done.returncode != 0:
                print(done.stdout, flush=True)
                bad.append(Path(str(command[0])).name if len(command) == 1 else str(command[-1]))
    if bad:
        raise Failed(f"{len(bad)} of {len(commands)} failed: {' '.join(bad)}")


def sources(*patterns):
    return [path for path in sorted(set(output("git", "ls-files", "-co", "--exclude-standard", *patterns))) if (ROOT / path).exists()]


def check_format():
    files = sources("src/*.h", "src/*.cpp", "tests/*.h", "tests/*.cpp", "fuzz/*.h", "fuzz/*.cpp", "microbench/*.h", "microbench/*.cpp")
    share = -(-len(files) // int(JOBS))
    in_parallel([["clang-format", "--dry-run", "--Werror", *files[i:i + share]] for i in range(0, len(files), share)])


def check_layers():
    run("python3", "tools/check_layers.py")


def check_sizes():
    run("python3", "tools/check_sizes.py")


def base_commit():
    """The last release: its tag or, where a clone has none, the commit that gave its section of the CHANGELOG the date."""
    tags = output("git", "tag", "--list", "v*", "--merged", "HEAD", "--sort=-creatordate")
    heading = re.search(r"^## [0-9.]+ \([0-9-]+\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    dated = output("git", "log", "--format=%H", f"-S{heading}", "--", "CHANGELOG.md")
    base = tags[0] if tags else (dated or ["HEAD"])[-1]
    if subprocess.run(["git", "cat-file", "-e", f"{base}^{{commit}}"], cwd=ROOT, capture_output=True).returncode != 0:
        base = output("git", "rev-list", "--max-parents=0", "HEAD")[-1]
        print(f"the base is not in this clone, which is shallow: what changed since {base} is looked at")
    return base


def changed_sources(base):
    """Every source that differs from `base`."""
    changed = set(output("git", "diff", "--name-only", "--diff-filter=d", base, "--", "src", "fuzz"))
    changed |= set(output("git", "ls-files", "-o", "--exclude-standard", "src", "fuzz"))
    return {path for path in changed if path.endswith(".cpp")}


def tidy_units(commands, chosen, folder):
    """-> entries of a compile database in which sources of a target are compiled TIDY_BATCH at a time, as the release does it:
    most of the time goes into the headers of others, which are read once then."""
    groups = {}
    for entry in commands:
        path = Path(entry["file"]).resolve()
        if path.is_relative_to(ROOT) and str(path.relative_to(ROOT)) in chosen:
            target = re.search(r" -o (\S+?\.dir)/", entry["command"])[1]
            flags = re.sub(r" -o \S+ -c \S+$| --param=\S+", "", entry["command"])  # the latter is GCC's alone
            groups.setdefault((target, flags), []).append(path)
    units = []
    for (_, flags), paths in sorted(groups.items()):
        for first in range(0, len(paths), TIDY_BATCH):
            unit = folder / f"unit_{len(units)}.cpp"
            unit.write_text("".join(f'#include "{path}"\n' for path in sorted(paths)[first:first + TIDY_BATCH]))
            units.append({"directory": str(folder.parent), "file": str(unit), "command": f"{flags} -c {unit}"})
    return units


def clang_tidy(tree, chosen, checks, *options):
    """Headers are looked at through the sources that include them (HeaderFilterRegex of .clang-tidy)."""
    tree = ROOT / "build" / tree
    shutil.rmtree(tree, ignore_errors=True)
    run("cmake", "--preset", "dev", "-B", tree, "-DSKEIN_FLEET=ON", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", *options)
    run("cmake", "--build", tree, "--target", "skein_generated")
    folder = tree / "units"
    folder.mkdir()
    units = tidy_units(json.loads((tree / "compile_commands.json").read_text()), chosen, folder)
    (folder / "compile_commands.json").write_text(json.dumps(units))
    print(f"{len(chosen)} sources, {len(units)} units")
    in_parallel([["clang-tidy", "--quiet", f"--checks={checks}", "--header-filter=/src/", "-p", folder, unit["file"]] for unit in units])


def check_tidy():
    clang_tidy("tidy", changed_sources(base_commit()), QUICK_CHECKS, "-DSKEIN_TESTS=OFF")


def check_lint():
    """Every check over every source, or over those of the folders that FOLDERS names."""
    folders = os.environ.get("FOLDERS", "").split() or ["src", "tests", "fuzz", "microbench"]
    clang_tidy("lint", set(sources(*(f"{folder}/*.cpp" for folder in folders))), UNIT_CHECKS, "-DSKEIN_TESTS=ON")


def build(preset, targets, *options):
    run("cmake", "--preset", preset, *options)
    run("cmake", "--build", "--preset", preset, "-j", JOBS, "--target", *targets)


def fuzz_targets():
    return [path.stem for path in sorted((ROOT / "fuzz").glob("*_fuzz.cpp"))]


def build_asan():
    build("asan", ["skein", *fuzz_targets(), *(test.split("/")[-1] for test in [*ASAN_TESTS, *ASAN_FLEET])], "-DSKEIN_FLEET=ON")


def build_tsan():
    build("tsan", ["skein", *(test.split("/")[-1] for test in TSAN_TESTS)])


def sanitized_tests(preset, tests, on_postgres=()):
    """A binary's tests are shared out to as many processes as there are cores, the larger binaries' first."""
    binaries = sorted((f"build/{preset}/tests/{test}" for test in tests), key=lambda path: -(ROOT / path).stat().st_size)
    shards = [["env", f"GTEST_TOTAL_SHARDS={JOBS}", f"GTEST_SHARD_INDEX={i}"] for i in range(int(JOBS))]
    in_parallel([["tests/fleet/with_postgres.sh", f"build/{preset}/tests/{test}"] for test in on_postgres]
                + [[*shard, binary] for binary in binaries for shard in shards], env={**SANITIZERS, "GTEST_BRIEF": "1"})


def sanitized_servers(preset, names, scripts=()):
    """A report of a sanitizer ends the server, and its text is in the log that the failing test shows."""
    env = {**SANITIZERS, "SKEIN_TEST_BINARY": str(ROOT / f"build/{preset}/skein"), "SKEIN_TEST_SANITIZED": "1",
           "PYTHONPATH": str(ROOT / "tests/apps")}
    in_parallel([["python3", "-B", "-m", "unittest", name] for name in names]
                + [["python3", "-B", script] for script in scripts], env=env)


def check_fuzz():
    """Every input of every corpus again, and as many that libFuzzer makes of them, the same ones in every run; `make fuzz` gives it
    minutes for each target. An input that fails is left in build/check/fuzz/."""
    shutil.rmtree(LOGS / "fuzz", ignore_errors=True)
    commands = []
    for target in fuzz_targets():
        grown = LOGS / "fuzz" / target  # where libFuzzer puts what it found, instead of the tree's corpus
        grown.mkdir(parents=True)
        commands.append([f"build/asan/fuzz/{target}", f"-runs={FUZZ_INPUTS}", "-seed=1", "-timeout=60", "-rss_limit_mb=2048",
                         "-max_len=65536", "-verbosity=0", f"-artifact_prefix={LOGS}/fuzz/{target}-", grown,
                         f"fuzz/corpus/{target.removesuffix('_fuzz')}"])
    in_parallel(commands, env=SANITIZERS)


def check_adding():
    """What CONTRIBUTING.md says of adding things, done to a copy of the tree: two minutes of compiling on one core, which `make test` has no time for."""
    run("cmake", "--preset", "release", "-DSKEIN_TESTS=ON")
    run("cmake", "--build", "--preset", "release", "-j", JOBS)
    run("python3", "-B", "tests/tools/adding_things_test.py", env={"SKEIN_BUILD_DIR": str(ROOT / "build/release")})


def check_mutants():
    """Every planted defect of tests/sim/mutants.py is caught, in the tree that `make test` leaves."""
    run("cmake", "--preset", "release", "-DSKEIN_TESTS=ON", "-DSKEIN_MUTANTS=ON")
    run("cmake", "--build", "--preset", "release", "-j", JOBS, "--target", "mutants")
    run("ctest", "--preset", "release", "-j", JOBS, "-R", r"^mutant\.")


def check_cuda():
    """The GPU's part compiles and links, where nvcc is; `make test` has no time for it where there is no GPU (tools/gpu_check.sh runs it)."""
    run("cmake", "--preset", "release", "-DSKEIN_TESTS=ON", "-DSKEIN_CUDA=AUTO")
    run("cmake", "--build", "--preset", "release", "-j", JOBS)


def check_bare():
    run("tools/bare_debian.sh")


def check_faults():
    run("make", "faults", f"POINTS={FAULT_POINTS}")


def check_console():
    run("make", "console")


def check_fleet():
    """Servers that share a PostgreSQL: the stores' own tests on it, and what docs/FLEET.md promises in a short form."""
    run("cmake", "--preset", "release", "-DSKEIN_TESTS=ON", "-DSKEIN_FLEET=ON")
    run("cmake", "--build", "--preset", "release", "-j", JOBS, "--target", "skein", "store_test", "auth_test", "server_batch_test",
        "postgres_test", "batch_nodes_test")
    run("tools/python_env.sh", "fleet")
    run("ctest", "--preset", "release", "-j", JOBS, "-R", r"\.postgres$|^fleet_")


PARTS = {
    "format": check_format,
    "layers": check_layers,
    "sizes": check_sizes,
    "tidy": check_tidy,
    "asan-build": build_asan,
    "asan-tests": lambda: sanitized_tests("asan", ASAN_TESTS, ASAN_FLEET),
    "asan-servers": lambda: sanitized_servers("asan", ASAN_SERVERS, [ASAN_GRPC]),
    "fuzz": check_fuzz,
    "tsan-build": build_tsan,
    "tsan-tests": lambda: sanitized_tests("tsan", TSAN_TESTS),
    "tsan-servers": lambda: sanitized_servers("tsan", TSAN_SERVERS),
    "adding": check_adding,
    "mutants": check_mutants,
    "cuda": check_cuda,
    "faults": check_faults,
    "console": check_console,
    "fleet": check_fleet,
    "bare": check_bare,
}
ON_REQUEST = {"lint": check_lint}  # takes too long for every change


# The first such line of a log begins what a reader needs.
SAYS_WHY = re.compile(r"WARNING: ThreadSanitizer|ERROR: \w+Sanitizer|runtime error:|: error:|\[  FAILED  \]|^(FAIL|ERROR): |\(Failed\)|\*\*\*|Traceback")


def print_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU {used.ru_utime + used.ru_stime:.1f}", flush=True)


def start_part(name, niceness=0):
    """A part runs in a process of its own, whose output is its log and whose last line is its CPU time."""
    command = ["nice", "-n", str(niceness), sys.executable, "-B", __file__, "--part", name]
    with open(LOGS / f"{name}.log", "w") as out:
        return name, time.monotonic(), subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def finish_part(part):
    """-> (name, passed, seconds, CPU seconds)"""
    name, began, process = part
    process.wait()
    lines = (LOGS / f"{name}.log").read_text(errors="replace").splitlines()
    cpu = float(lines[-1].removeprefix("CPU ")) if lines and lines[-1].startswith("CPU ") else 0.0
    if process.returncode != 0:
        print(f"--- {name} failed; of build/check/{name}.log what says why, and its end:")
        first = next((i for i, line in enumerate(lines) if SAYS_WHY.search(line)), len(lines))
        print("\n".join(lines[first:first + 60] + ["..."] + lines[max(first + 60, len(lines) - 30):]), flush=True)
    return name, process.returncode == 0, time.monotonic() - began, cpu


def run_parts(names):
    """One after the other, but for the bare Debian: it mostly waits for packages, so it has what the others leave of the machine until
    the parts come that hold time to figures."""
    beside = start_part("bare", 10) if "bare" in names and len(names) > 1 else None
    rows = []
    for name in names:
        if beside and name in ("console", "fleet", "bare"):
            rows.append(finish_part(beside))
            beside = None
        if not any(row[0] == name for row in rows):
            print(f"check: {name} ...", flush=True)
            rows.append(finish_part(start_part(name)))
    return rows


def main():
    if sys.argv[1:] == ["--list"]:
        return print("\n".join([*PARTS, *ON_REQUEST]))
    if len(sys.argv) == 3 and sys.argv[1] == "--part":
        try:
            return {**PARTS, **ON_REQUEST}[sys.argv[2]]()
        except Failed as failure:
            print(f"{sys.argv[2]}: {failure}")
            return 1
        finally:
            print_cpu_seconds()
    names = sys.argv[1:] or list(PARTS)
    if unknown := [name for name in names if name not in {**PARTS, **ON_REQUEST}]:
        sys.exit(f"check: there is no part {unknown[0]}; --list names them")
    LOGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    rows = run_parts(names)
    print(f"{'part':14}{'result':9}{'seconds':>9}{'CPU':>9}")
    for name, passed, seconds, cpu in rows:
        print(f"{name:14}{'passed' if passed else 'FAILED':9}{seconds:9.1f}{cpu:9.1f}")
    print(f"{'all':23}{time.monotonic() - began:9.1f}{sum(row[3] for row in rows):9.1f}")
    failed = sum(not row[1] for row in rows)
    print(f"check: {len(rows)} parts, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
