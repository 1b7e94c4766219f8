#!/usr/bin/env python3
"""What the store acknowledged survives a loss of power at any moment.

    power_loss_test.py STORE_CHILD RECORDER

A process works on a state folder while a preloaded library writes down every write, truncation, fsync, rename and removal, and
what it said was done. Then the power fails after each of these events: what had been synced is there, of the rest any part, in
any order and torn. The folder is put together as a disk would have it, opened, and held to what was said before.

The test tests itself: with the fsyncs of the contents, of the log, or of the folder of files taken for nothing it must find a
loss. SKEIN_TEST_FULL=1 plays every moment back several times.
"""
import os
import pathlib
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile

FULL = os.environ.get("SKEIN_TEST_FULL") == "1"
SECTOR = 512


def read_events(path):
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        what, length, offset, count = struct.unpack_from("<cHQI", data, at)
        at += 15
        name = data[at:at + length].decode()
        body = data[at + length:at + length + count]
        at += length + count
        events.append((what.decode(), name, offset, body))
    return events


class File:
    def __init__(self):
        self.synced, self.pending = b"", []

    def sync(self):
        self.synced, self.pending = self.content(self.pending), []

    def content(self, changes):
        data = bytearray(self.synced)
        for what, offset, body in changes:
            if what == "t":
                del data[offset:]
                data.extend(bytes(offset - len(data)))
            else:
                data.extend(bytes(max(0, offset + len(body) - len(data))))
                data[offset:offset + len(body)] = body
        return bytes(data)

    def after_loss(self, rng):
        """What was not synced is there or not, and a write may be there in part."""
        mode = rng.randrange(4)
        if mode == 0:
            return self.synced
        if mode == 1:
            return self.content(self.pending)
        kept = []
        for what, offset, body in self.pending:
            fate = rng.randrange(3)
            if fate == 0:
                continue
            if fate == 1 and what == "w" and len(body) > SECTOR:
                body = body[:rng.randrange(1, (len(body) + SECTOR - 1) // SECTOR) * SECTOR]
            kept.append((what, offset, body))
        return self.content(kept)


class Disk:
    """A file system that promises what POSIX does: contents by fsync of the file, names by fsync of the folder."""

    def __init__(self, ignored_syncs=()):
        self.now, self.durable = {".": None}, {".": None}  # name -> File; None: a folder
        self.names = []  # changes of names that no fsync has covered: (folder, change)
        self.ignored = ignored_syncs
        self.said = []

    def apply(self, event):
        what, name, offset, body = event
        if what == "a":
            self.said += body.decode().splitlines()
        elif what in "cmur":
            self.change_names(what, name, body.decode())
        elif what == "s":
            self.sync(name)
        elif name in self.now:
            self.now[name].pending.append((what, offset, body))

    def change_names(self, what, name, other):
        new = {"c": File(), "m": None}.get(what) if what in "cm" else None
        if what == "r":
            new = self.now.pop(name)
            self.now[other] = new
        elif what == "u":
            self.now.pop(name, None)
        else:
            self.now[name] = new
        self.names.append((str(pathlib.PurePosixPath(name).parent), what, name, other, new))

    @staticmethod
    def play(names, change):
        _, what, name, other, new = change
        if what == "u":
            names.pop(name, None)
        elif what == "r":
            names.pop(name, None)
            names[other] = new
        else:
            names[name] = new

    def sync(self, name):
        if any(name == part or (part.endswith("-") and name.startswith(part)) for part in self.ignored):
            return
        if name not in self.now:
            return
        if self.now[name] is not None:
            self.now[name].sync()
            return
        for change in [c for c in self.names if c[0] == name]:
            self.play(self.durable, change)
        self.names = [c for c in self.names if c[0] != name]

    def lose_power(self, rng, folder):
        names = dict(self.durable)
        reached = rng.choice((0, len(self.names), rng.randint(0, len(self.names))))
        for change in self.names[:reached]:
            self.play(names, change)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in sorted(n for n, file in names.items() if file is None and n != "."):
            (folder / name).mkdir(exist_ok=True)
        for name, file in names.items():
            if file is not None and (folder / name).parent.is_dir():
                (folder / name).write_bytes(file.after_loss(rng))


def check(folder, said):
    """The first promise that is broken, or None."""
    if not said:
        return None  # nothing was promised yet, not even that there is a database
    try:
        db = sqlite3.connect(folder / "skein.db")
        verdict = db.execute("PRAGMA integrity_check").fetchone()[0]
        if verdict != "ok":
            return f"the database is damaged: {verdict}"
        keys = dict(db.execute("SELECT name, revoked_at FROM keys"))
        files = dict(db.execute("SELECT id, bytes FROM files"))
        results = {tuple(row) for row in db.execute(
            "SELECT b.id, l.line FROM batch_lines l JOIN batches b ON b.seq = l.batch WHERE status_code IS NOT NULL")}
        batches = {row[0] for row in db.execute("SELECT id FROM batches")}
        db.close()
    except sqlite3.DatabaseError as error:
        return f"the database cannot be read: {error}"
    for id, size in files.items():
        content = folder / "files" / id
        if not content.exists() or content.stat().st_size != size or set(content.read_bytes()) & {0}:
            return f"{id} has lost bytes"
    deleting = {line.split()[1] for line in said if line.startswith("deleting ")}
    for line in said:
        what, *words = line.split()
        kept = {"key": lambda: words[0] in keys, "revoked": lambda: keys.get(words[0]) is not None,
                "deleting": lambda: True,
                "file": lambda: words[0] in files or words[0] in deleting, "deleted": lambda: words[0] not in files,
                "batch": lambda: words[0] in batches, "line": lambda: (words[0], int(words[1])) in results}[what]()
        if not kept:
            return f"'{line}' was said and is not so"
    return None


def moments(events, ignored):
    """Where to pull the plug: everywhere, or after whatever was said or synced and a sample of the rest."""
    rng = random.Random(7)
    for i, event in enumerate(events):
        if FULL:
            yield from [i] * 6
        elif event[0] == "a" or (not ignored and rng.random() < 0.25):
            yield i


def play(events, folder, ignored=()):
    """How many losses of power were tried, and the first broken promise."""
    wanted = list(moments(events, ignored))
    disk, tried = Disk(ignored), 0
    for i, event in enumerate(events):
        disk.apply(event)
        for turn in range(wanted.count(i)):
            tried += 1
            disk.lose_power(random.Random(i * 100 + turn), folder)
            if problem := check(folder, disk.said):
                return tried, f"after event {i} of {len(events)} {event[:3]}: {problem}"
    return tried, None


def main():
    child, recorder = sys.argv[1:]
    work = pathlib.Path(tempfile.mkdtemp(prefix="skein-power-"))
    try:
        state, log = work / "state", work / "log"
        state.mkdir(mode=0o700)
        subprocess.run([child, "scripted", state], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "LD_PRELOAD": recorder, "RECORD_ROOT": str(state), "RECORD_FILE": str(log)})
        events = read_events(log)
        said = [event for event in events if event[0] == "a"]
        assert len(said) > 20 and any(e[0] == "s" for e in events), "too little was recorded"
        tried, problem = play(events, work / "disk")
        assert problem is None, problem
        print(f"{len(events)} events, {len(said)} promises, power lost {tried} times: nothing that was said is lost")
        for ignored in ("files/file-", "skein.db-wal", "files"):
            _, problem = play(events, work / "disk", (ignored,))
            assert problem is not None, f"the fsyncs of {ignored} could be left out: this test finds nothing"
            print(f"without the fsyncs of {ignored}: {problem}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
