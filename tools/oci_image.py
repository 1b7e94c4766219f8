#!/usr/bin/env python3
"""Makes an OCI archive of a root file system in a tar file: one layer, a config, a manifest, an index. No daemon, no network.

  tools/oci_image.py --root root.tar --version 0.2.0 --commit HASH --time SECONDS --architecture amd64 --out image.tar

What it writes depends on its arguments alone. `podman load` and `docker load` take it, and `skopeo copy oci-archive:image.tar ...`.
"""
import argparse
import datetime
import gzip
import hashlib
import io
import json
import tarfile

# Without keys a server that others can reach does not start; SKEIN_INSECURE_OPEN=true insists.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "SKEIN_HOST": "0.0.0.0", "SKEIN_PORT": "8080",
    "SKEIN_STATE_DIR": "/var/lib/skein", "SKEIN_MODEL_FOLDER": "/var/lib/skein/models",
}
# Bash alone can ask for a page.
HEALTH = ("exec 3<>/dev/tcp/127.0.0.1/${SKEIN_PORT:-8080} && printf 'GET /health HTTP/1.1\\r\\nHost: localhost\\r\\n"
          "Connection: close\\r\\n\\r\\n' >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]")


class Archive:
    """The files of the archive, each named by the hash of its bytes."""

    def __init__(self, path, seconds):
        self.tar, self.seconds, self.seen = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT), seconds, set()

    def add(self, name, data):
        info = tarfile.TarInfo(name)
        info.size, info.mtime = len(data), self.seconds
        self.tar.addfile(info, io.BytesIO(data))

    def blob(self, data, kind):
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.seen:
            self.add(f"blobs/sha256/{digest}", data)
            self.seen.add(digest)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main():
    parser = argparse.ArgumentParser()
    for name in ("root", "version", "commit", "time", "architecture", "out"):
        parser.add_argument(f"--{name}", required=True)
    wanted = parser.parse_args()
    seconds = int(wanted.time)
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with open(wanted.root, "rb") as file:
        root = file.read()
    labels = {"org.opencontainers.image.title": "skein", "org.opencontainers.image.version": wanted.version,
              "org.opencontainers.image.revision": wanted.commit, "org.opencontainers.image.licenses": "Apache-2.0"}
    config = {
        "created": created, "architecture": wanted.architecture, "os": "linux",
        "config": {
            "User": "10001:10001", "WorkingDir": "/var/lib/skein", "Entrypoint": ["/usr/bin/skein"], "Cmd": ["serve"],
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()], "ExposedPorts": {"8080/tcp": {}},
            "Volumes": {"/var/lib/skein": {}}, "Labels": labels, "StopSignal": "SIGTERM",
            # Docker's word, which OCI leaves room for; times are nanoseconds.
            "Healthcheck": {"Test": ["CMD", "/bin/bash", "-c", HEALTH], "Interval": 10 * 10**9, "Timeout": 5 * 10**9,
                            "StartPeriod": 600 * 10**9, "Retries": 3},
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(root).hexdigest()]},
        "history": [{"created": created, "created_by": "tools/package.sh image"}],
    }
    archive = Archive(wanted.out, seconds)
    archive.add("oci-layout", compact({"imageLayoutVersion": "1.0.0"}))
    layer = archive.blob(gzip.compress(root, 6, mtime=0), "layer.v1.tar+gzip")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": archive.blob(compact(config), "config.v1+json"), "layers": [layer], "annotations": labels}
    entry = archive.blob(compact(manifest), "manifest.v1+json")
    entry["platform"] = {"architecture": wanted.architecture, "os": "linux"}
    entry["annotations"] = {"org.opencontainers.image.ref.name": wanted.version}
    archive.add("index.json", compact({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                                       "manifests": [entry]}))
    archive.tar.close()


if __name__ == "__main__":
    main()
