#!/usr/bin/env python3
"""The release binary has what turns an overrun into an end of the process (cmake/skein.cmake)."""
import os
import re
import subprocess
import sys
import unittest

BINARY = os.environ["SKEIN_TEST_BINARY"]
# Libraries of kernels, and what of them must be hardened all the same.
NUMERIC = {"libskein_backend.a": {f"{source}.cpp.o" for source in (
               "check_shapes", "cpu_backend", "cpu_matrix", "isa", "kernels_for", "kv", "memory", "packed_part", "reference_backend",
               "registry", "step", "weight_groups", "weight_parts")},
           "libskein_tensor.a": {"tensor.cpp.o"}}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class HardeningTest(unittest.TestCase):
    def test_the_binary_is_loaded_at_any_address(self):
        self.assertRegex(output("readelf", "-hW", BINARY), r"Type:\s+DYN \(Position-Independent Executable")

    def test_what_the_linker_resolves_is_read_only_before_main(self):
        dynamic = output("readelf", "-dW", BINARY)
        self.assertTrue("BIND_NOW" in dynamic or re.search(r"FLAGS_1\).*\bNOW\b", dynamic), dynamic)
        self.assertIn("GNU_RELRO", output("readelf", "-lW", BINARY))

    def test_the_stack_is_not_executable(self):
        stack = re.search(r"GNU_STACK.* (R\w*) +0x", output("readelf", "-lW", BINARY))
        self.assertEqual(stack.group(1), "RW")

    def test_calls_of_the_c_library_are_checked(self):
        symbols = output("readelf", "-W", "--dyn-syms", BINARY)
        self.assertIn("__stack_chk_fail", symbols)
        self.assertRegex(symbols, r" __\w+_chk@")

    def test_each_library_but_the_kernels_is_hardened(self):
        for library in sys.argv[1:]:
            name = os.path.basename(library)
            if name not in NUMERIC:
                symbols = output("nm", "-u", library)
                self.assertIn("__stack_chk_fail", symbols, name)
                self.assertIn("__glibcxx_assert_fail", symbols, name)

    def test_so_is_what_surrounds_the_kernels(self):
        for library in sys.argv[1:]:
            name = os.path.basename(library)
            if name not in NUMERIC:
                continue
            checked = {"__stack_chk_fail": set(), "__glibcxx_assert_fail": set()}
            for line in output("nm", "-uA", library).splitlines():
                member, symbol = line.split(":")[1], line.split()[-1]
                for check, members in checked.items():
                    if check in symbol:
                        members.add(member)
            self.assertLessEqual(NUMERIC[name], checked["__stack_chk_fail"] | checked["__glibcxx_assert_fail"], name)
            for members in checked.values():
                self.assertFalse([member for member in members if "kernels_" in member and "kernels_for" not in member], name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
