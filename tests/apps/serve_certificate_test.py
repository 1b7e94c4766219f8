"""A renewed certificate, taken by a running server."""
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import unittest

import serving

OPENSSL = shutil.which("openssl")


@serving.needs(OPENSSL, "there is no openssl command")
class CertificateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tiny = serving.tiny_model(self.folder)
        self.cert, self.key = self.folder / "cert.pem", self.folder / "key.pem"

    def make_pair(self, name):
        """As a renewal does it: new files take the place of the old ones."""
        cert, key = self.folder / "cert.new", self.folder / "key.new"
        subprocess.run([OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", f"/CN={name}", "-days", "1", "-keyout", key, "-out", cert],
                       check=True, capture_output=True)
        cert.replace(self.cert)
        key.replace(self.key)

    def served(self):
        return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=serving.PATIENCE_S)

    def start(self):
        state = self.folder / "state"
        log = open(self.folder / "log", "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([serving.BINARY, "serve", "--port", "0", "--state-dir", state, "--model", self.tiny,
                                    "--model-folder", self.folder / "none", "--threads", "1", "--sandbox",
                                    "--tls-cert", self.cert, "--tls-key", self.key],
                                   stdout=subprocess.PIPE, stderr=log, text=True, env=serving.clean_environment())
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.port = int(process.stdout.readline().rsplit(":", 1)[1])
        return process

    def wait_for_log(self, text):
        until = time.monotonic() + serving.PATIENCE_S
        while text not in (log := (self.folder / "log").read_text()):
            self.assertLess(time.monotonic(), until, log)
            time.sleep(0.02)

    def test_a_renewed_certificate_is_served_after_sighup_and_a_broken_one_is_not(self):
        self.make_pair("first")
        process = self.start()
        first = self.served()
        self.assertEqual(first, self.cert.read_text())

        self.make_pair("second")
        self.assertEqual(self.served(), first, "nobody asked for it yet")
        process.send_signal(signal.SIGHUP)
        self.wait_for_log("read again")
        second = self.served()
        self.assertEqual(second, self.cert.read_text())
        self.assertNotEqual(first, second)

        good_key = self.key.read_bytes()
        self.make_pair("third")
        self.key.write_bytes(good_key)  # of another certificate
        process.send_signal(signal.SIGHUP)
        self.wait_for_log("the old one stays")
        self.assertEqual(self.served(), second)


if __name__ == "__main__":
    unittest.main()
