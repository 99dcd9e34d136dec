"""A snapshot in Unicorn, as a second processor that shares nothing with the first: for code with nothing beyond SSE2.

Example: the original runs 12 iterations of a nest from the header to the header, a version made for SSE2 the same; the
registers and all pages must be equal afterwards, and equal to what the machine's own processor has left.

In: the pages, registers and vector state of a snapshot; the code of a version and its pages. Out: registers, xmm0 to
xmm15 and MXCSR, and the bytes of the pages, after a run. Raises ``NotEmulated``: Unicorn 2.1 runs VEX-encoded
instructions as if they were others, so each basic block is decoded first, and refused if it holds one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from unicorn import UC_ARCH_X86, UC_HOOK_BLOCK, UC_HOOK_CODE, UC_MODE_64, Uc, UcError, x86_const

from memopt.ir.code import FRAME_CHUNK, FRAME_LIMIT, CompiledRegion
from memopt.snapshots.form import PAGE, Snapshot
from memopt.x86.decoder import decode
from memopt.x86.instructions import GENERAL

_NUMBERS = {name: getattr(x86_const, f"UC_X86_REG_{name.upper()}") for name in (*GENERAL, "rip", "eflags", "fs_base",
                                                                                 "gs_base")}
_XMM = [getattr(x86_const, f"UC_X86_REG_XMM{n}") for n in range(16)]
_ARITHMETIC_FLAGS = 0xCD5
_VEX = (b"\xc4", b"\xc5", b"\x62")  # first bytes of VEX and EVEX (Intel SDM 2, 2.3 and 2.7)
_BLOCK_BYTES = 4096  # of a basic block that are looked at: the emulator makes no longer ones


class NotEmulated(Exception):
    """The code is not for this emulator, or takes too long in it. The message says why."""


class Emulation:
    """One copy of the snapshot in the emulator, which may run for ``seconds`` in all."""

    def __init__(self, snapshot: Snapshot, seconds: float) -> None:
        self._uc = Uc(UC_ARCH_X86, UC_MODE_64)
        self._until = time.monotonic() + seconds
        self._seen: set[int] = set()
        self._why = ""
        for pages in snapshot.pages:
            self._map(pages.start, len(pages.content))
            self._uc.mem_write(pages.start, pages.content)
        for name, number in _NUMBERS.items():
            self._uc.reg_write(number, snapshot.registers[name])
        self._uc.reg_write(_NUMBERS["rip"], snapshot.nest.header)
        self._uc.reg_write(x86_const.UC_X86_REG_MXCSR, snapshot.state.mxcsr)
        for number, value in zip(_XMM, snapshot.state.vectors, strict=False):
            self._uc.reg_write(number, int.from_bytes(value[:16], "little"))
        self._snapshot = snapshot
        self._uc.hook_add(UC_HOOK_BLOCK, self._check)

    def original(self, arrivals: int) -> None:
        """Run the original code until it comes to the header for the ``arrivals``-th time, where it stands now."""
        header, left = self._snapshot.nest.header, [arrivals + 1]

        def count(uc: Uc, _address: int, _size: int, _data: object) -> None:
            left[0] -= 1
            if left[0] == 0:
                uc.emu_stop()

        hook = self._uc.hook_add(UC_HOOK_CODE, count, begin=header, end=header)
        self._run(0)
        self._uc.hook_del(hook)
        if left[0]:
            raise NotEmulated("it left the nest too early")

    def version(self, compiled: CompiledRegion, iterations: int) -> None:
        """Let the version run ``iterations``, from the header to the header."""
        place = compiled.placement
        self._map(place.code, place.code_size)
        self._map(place.statistics, PAGE + place.frame_size)
        self._map(place.scratch, place.scratch_size)
        self._uc.mem_write(place.code, compiled.code)
        for word in (FRAME_LIMIT, FRAME_CHUNK):
            self._uc.mem_write(place.frame + word, iterations.to_bytes(8, "little"))
        self._uc.reg_write(_NUMBERS["rip"], compiled.entry)
        self._run(place.code)
        if self._uc.reg_read(_NUMBERS["rip"]) != place.code:
            raise NotEmulated("its version did not come to its end")
        self._uc.reg_write(_NUMBERS["rip"], compiled.region.header)

    def registers(self) -> Mapping[str, int]:
        """General registers, arithmetic flags, vector registers and MXCSR."""
        found = {name: self._uc.reg_read(number) for name, number in _NUMBERS.items()}
        found["eflags"] &= _ARITHMETIC_FLAGS
        found |= {f"xmm{n}": self._uc.reg_read(number) for n, number in enumerate(_XMM)}
        return found | {"mxcsr": self._uc.reg_read(x86_const.UC_X86_REG_MXCSR)}

    def memory(self) -> dict[int, bytes]:
        """The bytes of the snapshot's pages, by the address of each run of pages."""
        return {p.start: bytes(self._uc.mem_read(p.start, len(p.content))) for p in self._snapshot.pages}

    def _map(self, start: int, size: int) -> None:
        try:
            self._uc.mem_map(start, -(-size // PAGE) * PAGE)
        except UcError as error:
            raise NotEmulated(f"its memory cannot be mapped: {error}") from error

    def _run(self, until: int) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise NotEmulated("it takes too long")
        try:
            self._uc.emu_start(self._uc.reg_read(_NUMBERS["rip"]), until, timeout=int(left * 1e6))
        except UcError as error:
            raise NotEmulated(self._why or f"{error} at {self._uc.reg_read(_NUMBERS['rip']):#x}") from error
        if self._why:
            raise NotEmulated(self._why)
        if time.monotonic() >= self._until:
            raise NotEmulated("it takes too long")

    def _check(self, uc: Uc, address: int, size: int, _data: object) -> None:
        if address in self._seen or self._why:
            return
        self._seen.add(address)
        code = bytes(uc.mem_read(address, min(size, _BLOCK_BYTES)))
        wide = next((i for i in decode(code, address, size) if i.mnemonic.startswith("v") or i.bytes[:1] in _VEX), None)
        if wide is not None:
            self._why = f"{wide.mnemonic} at {wide.address:#x} is not SSE2"
            uc.emu_stop()
