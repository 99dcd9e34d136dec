"""Rewritten files without any version of a loop: a function of the file counts how often it is entered.

In: a program or library, the link-time address of an instruction. Out: the bytes of a new file, in which a jump of five
bytes there leads to code that adds one to a counter in the zeroed memory, runs what stood there and jumps back. And
runs of programs: what they wrote, how they ended, and the counter at their end, which is read when the program exits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memopt.elf.frame_rows import RSP, UnwindRow, UnwindRows, row_at
from memopt.elf.image import PF_X, PT_LOAD, Image
from memopt.elf.rewriting.record import VersionRecord, record_of
from memopt.elf.rewriting.room import room
from memopt.elf.rewriting.writer import Addition, Patch, written
from memopt.elf.symbols import Symbols
from memopt.x86.relocate import JUMP_SIZE, displace, relocate
from runtime.target.memory import mappings

STATE_LIMIT = 1 << 16
_COUNTER = 8  # in the state; the other bytes of the state's first lines stay zero
# lea rsp, [rsp - 128]; pushfq | lock inc qword [rip + ...] | popfq; lea rsp, [rsp + 128]
_BELOW_RED_ZONE, _COUNT, _BACK = map(bytes.fromhex, ("488d6424809c", "f048ff05", "9d488da42480000000"))
_LEA = 5
_TRACEME, _CONT, _SETOPTIONS, _TRACEEXIT, _EXIT_EVENT = 0, 7, 0x4200, 0x40, 6
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended. ``count``: the counter of the rewritten file; None without one, or if it is not mapped."""

    output: bytes
    errors: bytes
    status: int
    count: int | None


def counting(image: Image, address: int, state_bytes: int = 4096, *, trap: bool = False) -> Addition:
    """What makes the instruction at ``address`` count. ``trap``: an int3 there stops the program."""
    place = room(image, STATE_LIMIT)
    original = displace(lambda at, size: _read_some(image, at, size), address)
    code = _BELOW_RED_ZONE + (b"\xcc" if trap else b"") + _COUNT
    code += struct.pack("<i", place.state + _COUNTER - (place.code + len(code) + 4)) + _BACK
    rows = _rows(image, address, place.code, len(code))
    code += relocate(original, place.code + len(code))
    end = original[-1].address + original[-1].size
    code += b"\xe9" + struct.pack("<i", end - (place.code + len(code) + 5))
    patch = Patch(address, b"\xe9" + struct.pack("<i", place.code - (address + JUMP_SIZE)))
    function = Symbols(image).function_at(address)
    version = VersionRecord(
        header=address, function=function.shown if function else "", guards=("always",), region="", plan="",
        isa="sse2", machine="any", scratch=0, code=(place.code, place.code + len(code)), entries=_COUNTER,
        runs=_COUNTER, resting=0)
    unwind = (UnwindRows(place.code, place.code + len(code), rows),) if rows else ()
    return Addition(code, state_bytes, (patch,), (version,), STATE_LIMIT, unwind)


def _rows(image: Image, address: int, start: int, counted_bytes: int) -> tuple[UnwindRow, ...]:
    """The rows of the counting code at ``start``: those of ``address``, with the stack pointer lower for a while."""
    row = row_at(image, address)
    if row is None:
        return ()
    lowered = ((0, 0), (_LEA, 128), (_LEA + 1, 136), (counted_bytes - len(_BACK) + 1, 128), (counted_bytes, 0))
    on_stack = row.register == RSP and not row.expression
    return tuple(replace(row, start=start + at, offset=row.offset + (by if on_stack else 0)) for at, by in lowered)


def counted(image: Image, address: int) -> bytes:
    """The file with its instruction at ``address`` counted."""
    return written(image, counting(image, address))


def _read_some(image: Image, address: int, size: int) -> bytes:
    segment = next(s for s in image.segments if s.kind == PT_LOAD and s.address <= address < s.address + s.file_size)
    return image.read(image.offset_of(address), min(size, segment.address + segment.file_size - address))


def function_start(image: Image, name: str) -> int:
    """The first instruction of the function ``name``."""
    return next(f.start for f in Symbols(image).functions if f.name == name)


def run(argv: Sequence[str], *, executable: str | None = None, of: Path | None = None, given: bytes = b"",
        environment: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> Ran:
    """Runs a program to its end. ``of``: the rewritten file whose counter is asked for; by default the program."""
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        source.write(given)
        source.seek(0)
        started = subprocess.Popen(argv, executable=executable, stdin=source, stdout=output, stderr=errors,
                                   env=environment, preexec_fn=_be_traced)  # noqa: PLW1509 - it only makes a call
        try:
            status, count = _to_its_end(started.pid, str(of or executable or argv[0]), time.monotonic() + timeout_s)
            started.returncode = status
        finally:
            if started.returncode is None:
                started.kill()
                started.wait()
        output.seek(0)
        errors.seek(0)
        return Ran(output.read(), errors.read(), status, count)


def _be_traced() -> None:
    _libc.ptrace(_TRACEME, 0, None, None)


def _to_its_end(pid: int, path: str, deadline: float) -> tuple[int, int | None]:
    count: int | None = None
    traced = False
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            time.sleep(0.002)
            continue
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status), count
        passed_on = os.WSTOPSIG(status)
        if not traced:
            _libc.ptrace(_SETOPTIONS, pid, None, _TRACEEXIT)
            traced, passed_on = True, 0
        elif status >> 8 == signal.SIGTRAP | _EXIT_EVENT << 8:
            count, passed_on = _count(pid, path), 0
        _libc.ptrace(_CONT, pid, None, passed_on)
    raise TimeoutError(path)


def _count(pid: int, path: str) -> int | None:
    """The counter of the rewritten file at ``path`` in the process ``pid``."""
    with contextlib.suppress(OSError), Image(path) as image:
        record = record_of(image)
        place = next((m for m in mappings(pid) if m.executable and m.path == os.path.realpath(path)), None)
        if record is None or place is None:
            return None
        at = image.load_bias(place.start, place.offset) + record.state[0] + record.versions[0].entries
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(at)
            return int.from_bytes(memory.read(8), "little")
    return None


def code_of(image: Image) -> int:
    """An address in the middle of the largest executable segment."""
    largest = max((s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X), key=lambda s: s.file_size)
    return largest.address + largest.file_size // 2
