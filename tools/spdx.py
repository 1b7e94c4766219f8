#!/usr/bin/env python3
"""Lists what is inside a release as SPDX 2.3: every file with its hash, and the libraries that the binary was built with and links.

  tools/spdx.py --stage FOLDER --version 0.2.0 --commit HASH --time SECONDS --out skein.spdx.json
"""
import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess

# Compiled in (headers alone), by the Debian package that brings them.
HEADERS = {"libboost1.81-dev": "BSL-1.0", "libcli11-dev": "BSD-3-Clause", "nlohmann-json3-dev": "MIT"}
# Linked; the rest is the compiler's and the C library's.
LINKED = {"libtomlplusplus3": "MIT", "libssl3": "Apache-2.0", "libsqlite3-0": "blessing", "libfmt9": "MIT", "libutf8proc2": "MIT",
          "libprometheus-cpp-core1.0": "MIT", "libpq5": "PostgreSQL", "libedit2": "BSD-3-Clause", "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1",
          "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1", "libc6": "LGPL-2.1-or-later"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def package_of(library):
    """The Debian package of a shared library, as the loader would find it."""
    path = re.search(rf"^\s*{re.escape(library)} .*=> (\S+)$", output("/sbin/ldconfig", "-p"), re.M)[1]
    for name in (path, str(pathlib.Path(path).resolve()), path.replace("/lib/", "/usr/lib/", 1)):
        found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True).stdout
        if found:
            return found.split(":")[0]
    raise SystemExit(f"spdx: {path} is no package's")


def package(name, license_name, version, element):
    return {"SPDXID": f"SPDXRef-{re.sub('[^A-Za-z0-9.]', '-', element)}", "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": license_name,
            "licenseDeclared": license_name, "copyrightText": "NOASSERTION"}


def debian(name, licenses):
    version = output("dpkg-query", "-W", "-f=${Version}", name)
    return package(name, licenses[name], version, name)


def files_of(stage):
    files = []
    for path in sorted(p for p in stage.rglob("*") if p.is_file()):
        data = path.read_bytes()
        files.append({"SPDXID": f"SPDXRef-File-{len(files)}", "fileName": f"./{path.relative_to(stage)}",
                      "checksums": [{"algorithm": kind, "checksumValue": hashlib.new(kind.lower(), data).hexdigest()}
                                    for kind in ("SHA1", "SHA256")],
                      "licenseConcluded": "Apache-2.0", "copyrightText": "NOASSERTION"})
    return files


def main():
    parser = argparse.ArgumentParser()
    for name in ("stage", "version", "commit", "time", "out"):
        parser.add_argument(f"--{name}", required=True)
    wanted = parser.parse_args()
    stage = pathlib.Path(wanted.stage)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", stage / "usr/bin/skein"))
    linked = [debian(name, LINKED) for name in sorted({package_of(one) for one in needed if not one.startswith("ld-")})]
    headers = [debian(name, HEADERS) for name in sorted(HEADERS)]
    skein = package("skein", "Apache-2.0", wanted.version, "skein")
    files = files_of(stage)
    sums = "".join(sorted(file["checksums"][0]["checksumValue"] for file in files))
    skein.update(filesAnalyzed=True, sourceInfo=f"git commit {wanted.commit}",
                 packageVerificationCode={"packageVerificationCodeValue": hashlib.sha1(sums.encode()).hexdigest()})

    def relation(one, kind, other):
        return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}

    created = datetime.datetime.fromtimestamp(int(wanted.time), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"skein-{wanted.version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/skein-{wanted.version}-{wanted.commit}",
        "creationInfo": {"created": created, "creators": ["Tool: skein-tools-spdx"]},
        "packages": [skein, *linked, *headers], "files": files,
        "relationships": [relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-skein"),
                          *(relation("SPDXRef-skein", "CONTAINS", file["SPDXID"]) for file in files),
                          *(relation("SPDXRef-skein", "DYNAMIC_LINK", one["SPDXID"]) for one in linked),
                          *(relation("SPDXRef-skein", "STATIC_LINK", one["SPDXID"]) for one in headers)],
    }
    pathlib.Path(wanted.out).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
