"""What packages are made with: the same input gives the same bytes, and what was changed on the way is found out."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class ImageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        tree = self.folder / "tree"
        (tree / "usr/bin").mkdir(parents=True)
        (tree / "usr/bin/skein").write_text("#!/bin/sh\n")
        (tree / "usr/bin/skein").chmod(0o755)
        os.symlink("usr/bin", tree / "bin")
        self.root = self.folder / "root.tar"
        subprocess.run(["tar", "-C", tree, "-cf", self.root, "."], check=True)

    def make(self, name):
        out = self.folder / name
        subprocess.run([sys.executable, ROOT / "tools/oci_image.py", "--root", self.root, "--version", "1.2.3", "--commit", COMMIT,
                        "--time", "1700000000", "--architecture", "amd64", "--out", out], check=True)
        return out

    def unpack(self, image, name):
        return subprocess.run([sys.executable, ROOT / "tools/oci_unpack.py", image, self.folder / name], capture_output=True, text=True)

    def test_the_same_root_gives_the_same_bytes(self):
        self.assertEqual(self.make("a.tar").read_bytes(), self.make("b.tar").read_bytes())

    def test_what_is_unpacked_is_what_went_in(self):
        done = self.unpack(self.make("a.tar"), "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "out/usr/bin/skein").read_text(), "#!/bin/sh\n")
        self.assertEqual((self.folder / "out/usr/bin/skein").stat().st_mode & 0o777, 0o755)
        config = json.loads(done.stdout)["config"]
        self.assertEqual((config["User"], config["Entrypoint"], config["Cmd"]), ("10001:10001", ["/usr/bin/skein"], ["serve"]))
        self.assertEqual(config["Healthcheck"]["Test"][:3], ["CMD", "/bin/bash", "-c"])
        checked = subprocess.run(["bash", "-n", "-c", config["Healthcheck"]["Test"][3]], capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_a_changed_layer_is_found_out(self):
        image = self.make("a.tar")
        with tarfile.open(image) as tar:
            blobs = [member for member in tar.getmembers() if member.name.startswith("blobs/")]
        largest = max(blobs, key=lambda member: member.size)
        data = bytearray(image.read_bytes())
        data[largest.offset_data + largest.size // 2] ^= 1
        image.write_bytes(data)
        done = self.unpack(image, "out")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is not what it is called", done.stderr)


@unittest.skipUnless(shutil.which("dpkg-query"), "this is no Debian")
class ListTest(unittest.TestCase):
    def test_files_and_libraries_are_listed(self):
        with tempfile.TemporaryDirectory() as folder:
            stage, lists = pathlib.Path(folder, "stage"), []
            (stage / "usr/bin").mkdir(parents=True)
            shutil.copy("/bin/true", stage / "usr/bin/skein")  # links libc and nothing else
            for name in ("a", "b"):
                out = pathlib.Path(folder, name)
                subprocess.run([sys.executable, ROOT / "tools/spdx.py", "--stage", stage, "--version", "1.2.3", "--commit", COMMIT,
                                "--time", "1700000000", "--out", out], check=True)
                lists.append(out.read_text())
            self.assertEqual(*lists)
            document = json.loads(lists[0])
            self.assertEqual([file["fileName"] for file in document["files"]], ["./usr/bin/skein"])
            self.assertIn({"algorithm": "SHA256", "checksumValue": hashlib.sha256((stage / "usr/bin/skein").read_bytes()).hexdigest()},
                          document["files"][0]["checksums"])
            names = [package["name"] for package in document["packages"]]
            self.assertEqual(names, ["skein", "libc6", "libboost1.81-dev", "libcli11-dev", "nlohmann-json3-dev"])
            known = {item["SPDXID"] for item in (*document["packages"], *document["files"])} | {"SPDXRef-DOCUMENT"}
            for relation in document["relationships"]:
                self.assertLessEqual({relation["spdxElementId"], relation["relatedSpdxElement"]}, known)


if __name__ == "__main__":
    unittest.main()
