"""A shell on a terminal of its own, to be typed at: what job control looks like from where the user sits."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path

_PATIENCE = 300.0  # seconds until a missing answer is an error


class Terminal:
    """An interactive bash without start-up files, its prompt ``prompt> ``, in ``directory``."""

    def __init__(self, directory: Path, command: Sequence[str] = ("bash", "--norc", "--noprofile", "-i")) -> None:
        self.output = ""
        self._bytes = b""
        self._seen = 0
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            environment = {"PATH": os.environ["PATH"], "PS1": "prompt> ", "TERM": "dumb", "HISTFILE": ""}
            os.execvpe(command[0], list(command), environment)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._descriptor)  # hangs up what still runs there
        os.waitpid(self.pid, 0)

    def type(self, text: str) -> None:
        """Keys as they come from the keyboard: ``\\x03`` is Ctrl-C, ``\\x1a`` Ctrl-Z, ``\\x1c`` Ctrl-backslash."""
        os.write(self._descriptor, text.encode())

    def command(self, line: str) -> None:
        self.type(line + "\n")

    def await_foreground(self, process: int) -> None:
        """Wait until the terminal belongs to the group of ``process``: only then do Ctrl-C and Ctrl-Z go there."""
        end = time.monotonic() + _PATIENCE
        while os.tcgetpgrp(self._descriptor) != os.getpgid(process):
            assert time.monotonic() < end, f"process {process} did not come to the foreground"
            time.sleep(0.01)

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until ``pattern`` appears after what was expected before; AssertionError when it does not."""
        end = time.monotonic() + _PATIENCE
        while (found := re.search(pattern, self.output[self._seen:])) is None:
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))
            try:
                data = os.read(self._descriptor, 4096) if ready else b""
            except OSError:
                data = b""
            assert data, f"{pattern!r} did not appear in:\n{self.output}"
            self._bytes += data  # as a whole: a line's end may be cut in two where one read ends
            self.output = self._bytes.decode(errors="replace").replace("\r\n", "\n")
        self._seen += found.end()
        return found
