"""Run a program under a breakpoint: the state of a real process at an address, for tests of the analyses.

Only for tests: the traced program is a process of its own, stopped by int3, never one that memopt improves.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from types import TracebackType

from memopt.elf.unwind import function_ranges
from memopt.x86.frame import XMM_OFFSET, YMM_OFFSET
from runtime.target.memory import Mapping, mappings
from runtime.target.ptrace import Registers, get_vector_state

_TRACEME, _CONT, _GETREGS, _SETREGS, _STEP = 0, 7, 12, 13, 9
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


class Traced:
    """A program stopped at an address; use as a context manager."""

    def __init__(self, argv: list[str]) -> None:
        self.pid = os.fork()
        if not self.pid:
            _libc.personality(0x0040000)
            _libc.ptrace(_TRACEME, 0, None, None)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.execv(argv[0], argv)
        os.waitpid(self.pid, 0)
        self.ended = False
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        self.path = os.path.realpath(argv[0])

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        os.close(self.memory)
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def maps(self) -> tuple[Mapping, ...]:
        return mappings(self.pid)

    @property
    def bias(self) -> int:
        """What to add to an address of the ELF file."""
        first = min((m for m in self.maps() if m.path == self.path), key=lambda m: m.start)
        with open(self.path, "rb") as file:
            kind = struct.unpack_from("<H", file.read(18), 16)[0]
        return first.start if kind == 3 else 0

    def text(self) -> Mapping:
        return next(m for m in self.maps() if m.path == self.path and "x" in m.perms)

    def functions(self) -> list[tuple[int, int]]:
        return [(a + self.bias, b + self.bias) for a, b in function_ranges(self.path)]

    def read(self, address: int, size: int) -> bytes:
        return os.pread(self.memory, size, address)

    def peek(self, address: int, bits: int) -> int:
        return int.from_bytes(self.read(address, bits // 8), "little", signed=True)

    def run_to(self, address: int) -> bool:
        """Continue to ``address``; False when the program ended first."""
        saved = self.read(address, 1)
        os.pwrite(self.memory, b"\xcc", address)
        _libc.ptrace(_CONT, self.pid, None, None)
        _, status = os.waitpid(self.pid, 0)
        self.ended = not os.WIFSTOPPED(status)
        if self.ended:
            return False
        os.pwrite(self.memory, saved, address)
        buffer = self._raw()
        struct.pack_into("<Q", buffer, 16 * 8, address)
        _libc.ptrace(_SETREGS, self.pid, None, ctypes.cast(buffer, ctypes.c_void_p))
        return True

    def step(self) -> int:
        """Run one instruction; the new instruction pointer."""
        _libc.ptrace(_STEP, self.pid, None, None)
        os.waitpid(self.pid, 0)
        return int(self.registers()["rip"])

    def _raw(self) -> ctypes.Array[ctypes.c_char]:
        buffer = ctypes.create_string_buffer(27 * 8)
        _libc.ptrace(_GETREGS, self.pid, None, ctypes.cast(buffer, ctypes.c_void_p))
        return buffer

    def vectors(self) -> dict[str, bytes]:
        """The 32 bytes of each vector register, under the names of their lower halves."""
        state = get_vector_state(self.pid)
        return {f"xmm{n}": state[at:at + 16] + state[up:up + 16].ljust(16, b"\0")
                for n in range(16) for at, up in [(XMM_OFFSET + 16 * n, YMM_OFFSET + 16 * n)]}

    def registers(self) -> dict[str, int]:
        return dict(zip(Registers.__dataclass_fields__, struct.unpack("<27Q", self._raw().raw[:216]), strict=True))
