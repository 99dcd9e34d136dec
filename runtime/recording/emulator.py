"""Emulates a thread that cannot run any more, up to the next instruction of its program.

Example: a thread was killed in the middle of a probe that increments a counter. Emulation finishes the probe, so that
the counter is right.

In: registers, memory, a condition on the instruction pointer. Out: the registers there; the memory is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from unicorn import UC_ARCH_X86, UC_HOOK_MEM_UNMAPPED, UC_HOOK_MEM_WRITE, UC_MODE_64, Uc, UcError, x86_const

from runtime.target.memory import PAGE, Memory
from runtime.target.ptrace import Registers

_NAMES = (*(field.name for field in fields(Registers) if field.name[0] == "r"), "eflags", "fs_base", "gs_base")
_NUMBERS = {name: getattr(x86_const, f"UC_X86_REG_{name.upper()}") for name in _NAMES}


def emulate(registers: Registers, memory: Memory, stop: Callable[[int], bool], most: int) -> Registers | None:
    """Runs on from ``registers`` until ``stop`` holds for the instruction pointer, then writes to ``memory`` what was
    written.

    Returns the registers. None, and nothing is written, if that takes more than ``most`` instructions, or one that
    cannot be emulated.
    """
    emulator, written = Uc(UC_ARCH_X86, UC_MODE_64), list[tuple[int, bytes]]()

    def find(_uc: Uc, _access: int, address: int, size: int, _value: int, _data: object) -> bool:
        try:
            for page in {address // PAGE * PAGE, (address + size - 1) // PAGE * PAGE}:
                content = memory.read(page, PAGE)
                emulator.mem_map(page, PAGE)
                emulator.mem_write(page, content)
        except (OSError, UcError):
            return False
        return True

    def note(_uc: Uc, _access: int, address: int, size: int, value: int, _data: object) -> None:
        written.append((address, (value % (1 << 8 * size)).to_bytes(size, "little")))

    emulator.hook_add(UC_HOOK_MEM_UNMAPPED, find)
    emulator.hook_add(UC_HOOK_MEM_WRITE, note)
    for name, number in _NUMBERS.items():
        emulator.reg_write(number, getattr(registers, name))
    rip = registers.rip
    for _ in range(most):
        if stop(rip):
            for address, content in written:
                memory.write(address, content)
            return replace(registers, **{name: emulator.reg_read(number) for name, number in _NUMBERS.items()})
        try:
            emulator.emu_start(rip, 0, count=1)
        except UcError:
            return None
        rip = emulator.reg_read(_NUMBERS["rip"])
    return None
