"""The unit of packaging/, as systemd reads it."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import serving

UNIT = pathlib.Path(__file__).resolve().parents[2] / "packaging/skein.service.in"
DYNAMO = UNIT.parent / "dynamo"
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSURE = "15"  # of 100; a service without any of it has 96


class ServiceUnitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.unit = pathlib.Path(folder.name, "skein.service")
        # A program that is there; what it is called is not the unit's subject.
        self.unit.write_text(UNIT.read_text().replace("@CMAKE_INSTALL_PREFIX@/bin/skein", "/bin/true"))

    def test_the_sandbox_of_the_server_is_not_refused_its_calls(self):
        lines = re.findall(r"^SystemCallFilter=(.*)$", self.unit.read_text(), re.M)
        self.assertEqual(lines[:2], ["@system-service", "~@privileged @resources"])
        for call in ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"):
            self.assertIn(call, lines[2].split())

    @serving.needs(ANALYZE, "there is no systemd-analyze (Debian's systemd)")
    def test_systemd_finds_nothing_wrong_and_little_exposed(self):
        verified = subprocess.run([ANALYZE, "verify", self.unit], capture_output=True, text=True)
        self.assertEqual((verified.returncode, verified.stderr), (0, ""))
        exposed = subprocess.run([ANALYZE, "security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSURE}",
                                  self.unit], capture_output=True, text=True)
        self.assertEqual(exposed.returncode, 0, exposed.stdout[-300:] + exposed.stderr)

    @serving.needs(ANALYZE, "there is no systemd-analyze (Debian's systemd)")
    def test_units_of_dynamo(self):
        folder = self.unit.parent
        for unit in DYNAMO.glob("*.service"):
            name = unit.name.replace("@.", "@1.")
            (folder / name).write_text(unit.read_text().replace("/usr/bin/skein", "/bin/true").replace("%i", "1"))
        names = ["skein-node@1.service", "skein-sidecar@1.service", "skein-dynamo.service"]
        verified = subprocess.run([ANALYZE, "verify", *(folder / name for name in names)], capture_output=True, text=True)
        self.assertEqual((verified.returncode, verified.stderr), (0, ""))
        # A sidecar that lives on ends the streams of its node with an error.
        self.assertRegex((folder / names[1]).read_text(), r"(?m)^BindsTo=skein-node@1.service$")


if __name__ == "__main__":
    unittest.main()
