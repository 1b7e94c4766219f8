#!/usr/bin/env python3
"""Unpacks an OCI archive of one image into a folder and prints its config, after every hash was checked.

  tools/oci_unpack.py image.tar FOLDER
"""
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile


def main():
    archive, folder = sys.argv[1:]
    with tarfile.open(archive) as tar:
        def read(name):
            return tar.extractfile(name).read()

        def blob(entry):
            data = read("blobs/" + entry["digest"].replace(":", "/"))
            if len(data) != entry["size"] or "sha256:" + hashlib.sha256(data).hexdigest() != entry["digest"]:
                raise SystemExit(f"oci_unpack: {entry['digest']} is not what it is called")
            return data

        assert json.loads(read("oci-layout"))["imageLayoutVersion"] == "1.0.0"
        manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        os.makedirs(folder)
        for entry, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            layer = gzip.decompress(blob(entry))
            if "sha256:" + hashlib.sha256(layer).hexdigest() != diff_id:
                raise SystemExit(f"oci_unpack: the layer is not {diff_id}")
            subprocess.run(["tar", "-x", "--numeric-owner", "-p", "-C", folder], input=layer, check=True)
    print(json.dumps(config))


if __name__ == "__main__":
    main()
