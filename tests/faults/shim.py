"""The harness's side of fault_shim.cpp: which call of a process fails, and what became of it."""
import errno
import mmap
import pathlib
import re
import struct
import subprocess

# The order of the enum in fault_shim.cpp, each with the errors that such a call really gives.
CLASSES = {
    "alloc": (errno.ENOMEM,),
    "write": (errno.ENOSPC, errno.EIO),
    "send": (errno.ENOBUFS, errno.ECONNRESET),
    "sync": (errno.EIO,),
    "accept": (errno.EMFILE, errno.ENOMEM),
    "thread": (errno.EAGAIN,),
    "map": (errno.ENOMEM,),
    "open": (errno.EMFILE, errno.ENOSPC),
    "file": (errno.EIO, errno.ENOSPC),
}
NAMES = list(CLASSES)
OFF, COUNTING, FAILING, ABORTING = range(4)
WORDS = ("mode", "kind", "first", "count", "error", "failed", "crashed", "process")
CALLS = 16


class Shim:
    """One shared page and one file of stacks; both live in `folder`."""

    def __init__(self, library, folder):
        self.library = pathlib.Path(library).resolve()
        self.control = pathlib.Path(folder, "control")
        self.report = pathlib.Path(folder, "stacks")
        size = 8 * (len(WORDS) + CALLS)
        self.control.write_bytes(bytes(size))
        with open(self.control, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), size)

    def environment(self):
        return {"LD_PRELOAD": str(self.library), "FAULT_SHIM_CONTROL": str(self.control),
                "FAULT_SHIM_REPORT": str(self.report)}

    def get(self, word):
        return struct.unpack_from("<Q", self.page, 8 * WORDS.index(word))[0]

    def put(self, word, value):
        struct.pack_into("<Q", self.page, 8 * WORDS.index(word), value)

    def calls(self):
        counts = struct.unpack_from(f"<{CALLS}Q", self.page, 8 * len(WORDS))
        return dict(zip(NAMES, counts))

    def reset(self):
        self.put("mode", OFF)
        self.page[8 * len(WORDS):] = bytes(8 * CALLS)
        self.put("failed", 0)
        self.put("crashed", 0)
        self.report.touch()
        with open(self.report, "r+b") as file:  # the process goes on appending
            file.truncate(0)

    def start_counting(self):
        self.reset()
        self.put("mode", COUNTING)

    def arm(self, kind, first, count, error, mode=FAILING):
        self.reset()
        for word, value in (("kind", NAMES.index(kind)), ("first", first), ("count", count), ("error", error)):
            self.put(word, value)
        self.put("mode", mode)

    def disarm(self):
        self.put("mode", OFF)

    def stacks(self):
        """{'fault': [frames], 'crash': [frames]}, as far as they were written; innermost first."""
        found, current = {}, None
        text = self.report.read_text(errors="replace") if self.report.exists() else ""
        for line in text.splitlines():
            if head := re.match(r"(fault|crash) \d+$", line):
                current = found.setdefault(head[1], [])
            elif current is not None:
                current.append(line)
        return found


def is_frame_of(frame, *modules):
    return any(module in frame.split("(")[0].rsplit("/", 1)[-1] for module in modules)


def is_libc_crash(frames):
    """Whether it was libc that called abort(), rather than who called libc or C++'s runtime."""
    for at, frame in enumerate(frames):
        if "(abort+" in frame:
            return at + 1 < len(frames) and is_frame_of(frames[at + 1], "libc.so", "ld-linux", "libgcc_s")
    return False


def symbolized(frames, limit=14):
    """Frames as `function (object)`, the shim's own and the unwinder's left out."""
    shown = []
    for frame in frames:
        match = re.match(r"(.*)\(([^+)]*)\+(0x[0-9a-f]+)\)", frame)
        if not match or "fault_shim" in match[1]:
            continue
        path, name, offset = match.groups()
        if not name or path.endswith("skein"):
            lines = subprocess.run(["addr2line", "-Cfe", path, hex(int(offset, 16) - 1)],
                                   capture_output=True, text=True, check=False).stdout.splitlines()
            name = lines[0] if lines and lines[0] != "??" else f"+{offset}"
        elif name.startswith("_Z"):
            name = subprocess.run(["c++filt", name], capture_output=True, text=True, check=False).stdout.strip() or name
        shown.append(f"{name[:150]} ({path.rsplit('/', 1)[-1]})")
    return shown[:limit]
