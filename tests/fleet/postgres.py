"""A PostgreSQL of a test's own that can be killed, frozen, started again, copied into a standby and promoted.

PostgreSQL refuses to run as root, so root starts it as nobody. Nothing is flushed to the disk: what dies here are processes.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

USER = "nobody"


def binaries():
    """The newest that is installed; None: there is none."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])
    return found[-1] if found else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def children_of(parent):
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry.parent.name))
    return found


class Postgres:
    def __init__(self, *settings, networks=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skein.postgres."))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings, self.networks = settings, networks
        self.process = None
        if os.getuid() == 0:
            shutil.chown(self.folder, USER, "nogroup")

    def _command(self, tool, *arguments):
        prefix = ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
        return [*prefix, str(binaries() / tool), *map(str, arguments)]

    def _run(self, tool, *arguments):
        done = subprocess.run(self._command(tool, *arguments), cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{tool}: {done.stdout}{done.stderr}"
        return done.stdout

    def make(self):
        self._run("initdb", "-D", self.data, "-U", "skein", "-E", "UTF8", "--no-locale", "-A", "trust", "--no-sync")
        with open(self.data / "pg_hba.conf", "a") as rules:
            for network in self.networks:
                rules.write(f"host all all {network} trust\n")
        return self

    def copy_of(self, primary):
        """A standby that follows it."""
        self._run("pg_basebackup", "-D", self.data, "-h", "127.0.0.1", "-p", primary.port, "-U", "skein", "-R", "--checkpoint=fast",
                  "--no-sync")
        return self

    def start(self, *settings):
        line = ["-D", self.data, "-k", self.folder, "-p", self.port]
        for setting in ("listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=32MB", "max_connections=60",
                        "log_min_messages=fatal", *self.settings, *settings):
            line += ["-c", setting]
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(self._command("postgres", *line), cwd=self.folder, stdout=log, stderr=log)
        log.close()
        until = time.monotonic() + 60
        while not self.is_ready():
            assert self.process.poll() is None and time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)
        return self

    def is_ready(self):
        return subprocess.run(self._command("pg_isready", "-q", "-h", "127.0.0.1", "-p", self.port, "-U", "skein")).returncode == 0

    def query(self, sql):
        return subprocess.run(["psql", "-XAtq", self.url(), "-c", sql], check=True, capture_output=True, text=True).stdout.strip()

    def url(self, *others):
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in (self, *others))
        return f"postgresql://skein@{hosts}/postgres?connect_timeout=3" + ("&target_session_attrs=read-write" if others else "")

    def _all(self):
        return [self.process.pid, *children_of(self.process.pid)]

    def kill(self):
        """Every process of it at once, with SIGKILL: none goes on with what it had begun."""
        self.process.send_signal(signal.SIGSTOP)  # so that it starts no other
        for pid in reversed(self._all()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def freeze(self):
        for pid in self._all():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self._all():
            os.kill(pid, signal.SIGCONT)

    def promote(self):
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    def check(self):
        """Every table and index is sound."""
        self._run("pg_amcheck", "-h", "127.0.0.1", "-p", self.port, "-U", "skein", "--install-missing", "--heapallindexed", "postgres")

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
