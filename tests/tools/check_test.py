"""tools/check.py and .ci/run: a part that fails is counted and keeps no other from running, and the last line says so."""
import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check  # noqa: E402


class CheckTest(unittest.TestCase):
    def run_parts(self, outcomes):
        """main() over stand-ins for parts: their names and whether they pass."""
        told = io.StringIO()
        before = check.PARTS, check.start_part, check.finish_part, sys.argv
        check.PARTS = outcomes
        check.start_part = lambda name, niceness=0: name
        check.finish_part = lambda name: (name, outcomes[name], 1.5, 2.5)
        sys.argv = ["check.py"]
        try:
            with contextlib.redirect_stdout(told):
                status = check.main()
        finally:
            check.PARTS, check.start_part, check.finish_part, sys.argv = before
        return status, told.getvalue().splitlines()

    def test_every_part_runs_and_the_last_line_counts(self):
        status, lines = self.run_parts({"one": True, "two": False, "three": True})
        self.assertEqual((status, lines[-1]), (1, "check: 3 parts, 1 failed"))
        self.assertIn("three", lines[-3])
        status, lines = self.run_parts({"one": True})
        self.assertEqual((status, lines[-1]), (0, "check: 1 parts, 0 failed"))

    def test_the_part_that_runs_beside_others_is_counted_once(self):
        status, lines = self.run_parts({"one": True, "console": True, "bare": False})
        self.assertEqual((status, lines[-1]), (1, "check: 3 parts, 1 failed"))
        self.assertEqual(sum(line.startswith("bare ") for line in lines), 1)

    def test_a_command_that_fails_fails_its_part(self):
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(check.Failed):
            check.run("false")
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(check.Failed):
            check.in_parallel([["true"], ["false"]])
        with contextlib.redirect_stdout(io.StringIO()):
            check.in_parallel([["true"], ["true"]])

    def test_units_hold_chosen_sources_of_one_target_with_the_same_flags(self):
        def entry(path, target="kv", flags="-O2"):
            return {"file": str(ROOT / path), "command": f"c++ {flags} --param=ggc-min-heapsize=1 -o src/{target}.dir/{path}.o -c {ROOT / path}"}

        commands = [entry(f"src/kv/{i}.cpp") for i in range(9)]
        commands += [entry("src/kv/odd.cpp", flags="-O3"), entry("src/sched/a.cpp", "sched"), entry("src/kv/other.cpp", "kv_shared")]
        chosen = {entry["file"].removeprefix(f"{ROOT}/") for entry in commands} - {"src/kv/3.cpp"}
        with tempfile.TemporaryDirectory() as folder:
            units = check.tidy_units(commands, chosen, pathlib.Path(folder))
            texts = [pathlib.Path(unit["file"]).read_text() for unit in units]
        self.assertEqual(sorted(text.count("#include") for text in texts), [1, 1, 1, 8])
        self.assertFalse(any("/3.cpp" in text for text in texts))
        self.assertTrue(all(unit["command"].endswith(f"-c {unit['file']}") for unit in units))
        self.assertFalse(any("--param" in unit["command"] for unit in units), "clang would warn of it, and a warning is an error")

    def test_the_parts_name_tests_that_exist(self):
        for name in {*check.ASAN_SERVERS, *check.TSAN_SERVERS}:
            module, *rest = name.split(".")
            text = (ROOT / f"tests/apps/{module}.py").read_text()
            for word in rest:
                self.assertRegex(text, rf"(class|def) {word}\b", name)
        for name in {*check.ASAN_TESTS, *check.TSAN_TESTS}:
            folder, _, target = name.rpartition("/")
            self.assertIn(f"skein_test({target}", (ROOT / "tests" / folder / "CMakeLists.txt").read_text(), name)


class CiTest(unittest.TestCase):
    def run_ci(self, test, check_):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/.ci")
            shutil.copy(ROOT / ".ci/run", f"{folder}/.ci/run")
            pathlib.Path(folder, "Makefile").write_text(f"test:\n\t@{test}\ncheck:\n\t@{check_}\n")
            done = subprocess.run([f"{folder}/.ci/run"], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1]

    def test_the_last_line_counts_both_gates(self):
        passed = 'echo "100% tests passed, 0 tests failed out of 1500"'
        failed = 'echo "99% tests passed, 3 tests failed out of 1500"; false'
        self.assertEqual(self.run_ci(passed, 'echo "check: 12 parts, 0 failed"'), (0, "1512 passed, 0 failed"))
        self.assertEqual(self.run_ci(failed, 'echo "check: 12 parts, 1 failed"; false'), (1, "1508 passed, 4 failed"))
        self.assertEqual(self.run_ci("false", "false"), (1, "0 passed, 2 failed"))  # a build that failed
        self.assertEqual(self.run_ci(passed, "false"), (1, "1500 passed, 1 failed"))

    def test_nothing_may_be_missing(self):
        status, _ = self.run_ci('[ "$$SKEIN_REQUIRE" = all ] && echo "100% tests passed, 0 tests failed out of 1"', "true")
        self.assertEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
