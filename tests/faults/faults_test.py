#!/usr/bin/env python3
"""The harness of faults must see what it is there for: faults_test.py BINARY SHIM."""
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BINARY, SHIM = sys.argv[1:3]
sys.path.insert(0, str(HERE))
from faults import places  # noqa: E402
from shim import is_libc_crash  # noqa: E402


def run(*arguments):
    done = subprocess.run([sys.executable, "-B", HERE / "faults.py", "--binary", BINARY, "--shim", SHIM, "--jobs", "1",
                           *arguments], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


class HarnessTest(unittest.TestCase):
    def test_a_planted_crash_is_counted_and_shown_with_its_stack(self):
        code, said = run("--only", "chat:alloc:20:1:12", "--plant")
        self.assertEqual(code, 1, said)
        self.assertIn("signal 6 in chat", said)
        self.assertRegex(said, r"failed call:\n +.*\n")
        self.assertEqual(said.splitlines()[-1], "faults: 1 points, 1 crashes, 0 lost lines, 0 corrupt databases")

    def test_a_call_that_fails_in_a_request_is_a_point_and_no_crash(self):
        code, said = run("--only", "upload:write:1:1:28")
        self.assertEqual(code, 0, said)
        self.assertEqual(said.splitlines()[-1], "faults: 1 points, 0 crashes, 0 lost lines, 0 corrupt databases")

    def test_a_point_that_is_never_reached_is_none(self):
        code, said = run("--only", "chat:thread:1000:1:11")
        self.assertEqual(code, 1, said)
        self.assertTrue(re.search(r"^faults: 0 points, 0 crashes", said, re.M), said)


class RulesTest(unittest.TestCase):
    def test_an_abort_that_libc_calls_is_libcs_own(self):
        handler = ["libfault_shim.so(+0x1)[0x1]", "/lib/libc.so.6(+0x2)[0x2]"]
        abort = ["/lib/libc.so.6(abort+0xd3)[0x3]"]
        self.assertTrue(is_libc_crash([*handler, *abort, "/lib/libc.so.6(+0x4)[0x4]", "build/skein(+0x5)[0x5]"]))
        self.assertFalse(is_libc_crash([*handler, *abort, "/lib/libstdc++.so.6(+0x4)[0x4]"]))
        self.assertFalse(is_libc_crash([*handler, *abort, "build/skein(+0x4)[0x4]"]))
        self.assertFalse(is_libc_crash([*handler, "build/skein(+0x4)[0x4]"]))

    def test_the_first_calls_are_all_tried_and_the_rest_evenly(self):
        class Last:
            @staticmethod
            def randint(_, last):
                return last

        self.assertEqual(places(Last, 3, 10), [1, 2, 3])
        self.assertEqual(places(Last, 100, 10), [1, 2, 3, 4, 5, 24, 43, 62, 81, 100])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
