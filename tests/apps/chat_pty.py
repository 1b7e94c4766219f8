"""Talks to `skein chat` through a terminal, as a person would. Exits with 1 and says where it failed.

    chat_pty.py skein model
"""
import os
import pty
import re
import select
import signal
import sys
import termios
import time


class Terminal:
    def __init__(self, command):
        self.shown = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)

    def read(self, seconds):
        """Whatever comes within that time; empty at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return None
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is gone
            data = b""
        text = data.decode("utf-8", "replace")
        self.shown += text
        return text

    def expect(self, pattern, what, seconds=30):
        """Waits for the pattern and forgets what was shown up to it."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.shown)
            if found:
                self.shown = self.shown[found.end():]
                return
            left = deadline - time.monotonic()
            if left <= 0 or self.read(left) == "":
                sys.exit(f"{what}: no {pattern!r} in {self.shown[-400:]!r}")

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait_for_raw_mode(self):
        """The prompt is shown before keys are read one by one; until then Ctrl-C is a signal."""
        deadline = time.monotonic() + 30
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            if time.monotonic() > deadline:
                sys.exit("the terminal does not go into raw mode")
            time.sleep(0.01)

    def wait_for_answer(self):
        """Some text of an answer that has no end."""
        before = len(self.shown)
        while len(self.shown) < before + 200:
            if self.read(30) in (None, ""):
                sys.exit(f"no answer came: {self.shown[-400:]!r}")

    def end(self, what, keys=""):
        """Waits for the end, typing `keys` until it comes: a terminal that is not yet in raw mode
        swallows Ctrl-D."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0:
                if keys:
                    self.send(keys)
                self.read(0.2)
            elif status != 0:
                sys.exit(f"{what}: ended with {status}")
            else:
                return
        os.kill(self.pid, signal.SIGKILL)
        sys.exit(f"{what}: did not end; {self.shown[-400:]!r}")


def main():
    # An answer of letters: it never looks like a prompt.
    letters = ",".join(str(ord(c)) for c in "abcdefgh")
    command = [sys.argv[1], "chat", "--model", sys.argv[2], "--ignore-eos",
               "--allowed-token-ids", letters]
    prompt = r"> "
    terminal = Terminal(command)
    terminal.expect(prompt, "at first")

    terminal.send("hello\n")
    terminal.wait_for_answer()
    terminal.send("\x03")
    terminal.expect(r"\n[^\n]*" + prompt, "Ctrl-C in mid-answer brings the prompt back")

    terminal.send("and again\n")
    terminal.wait_for_answer()
    os.kill(terminal.pid, signal.SIGINT)
    terminal.expect(r"\n[^\n]*" + prompt, "and so does the signal")

    terminal.wait_for_raw_mode()
    terminal.send("half a line\x03")
    terminal.expect(r"\n[^\n]*" + prompt, "Ctrl-C drops a line")
    terminal.send("/help\n")
    terminal.expect("forget the conversation", "after Ctrl-C the line is empty")
    terminal.expect(prompt, "after /help")
    terminal.send("\x1b[A\n")
    terminal.expect("forget the conversation", "the arrow brings back the last line")
    terminal.expect(prompt, "after the second /help")
    terminal.send("/reset\n")
    terminal.expect("conversation is forgotten", "/reset")
    terminal.expect(prompt, "after /reset")
    terminal.send("/exot\x7f\x7fit\n")
    terminal.end("/exit, edited")

    terminal = Terminal(command)
    terminal.expect(prompt, "at first")
    terminal.end("Ctrl-D", keys="\x04")


if __name__ == "__main__":
    main()
