"""Whether a program has the means to change its machine code while it runs.

Example: a program that imports ``mprotect`` may make its text writable and patch it; one that imports ``printf`` and
``malloc`` cannot. It matters where a whole loop has to move: its copy would go on with the old instructions.

In: a process. Out: yes or no; yes in doubt. Looked at are the symbols that its files import, and the bytes of their
text, for system calls of their own. The libraries of the compilers and the C library change no text of others. What a
debugger or /proc/self/mem writes is seen by nobody.
"""

from __future__ import annotations

import os

from memopt.elf.image import PF_X, PT_LOAD, ElfError, Image
from memopt.elf.relocations import imports
from memopt.ir.reasons import Rejected
from runtime.target.memory import mappings

# Functions that may change what is mapped at an address, or bring in code that may.
_MEANS = frozenset(("mprotect", "pkey_mprotect", "mmap", "mmap64", "mremap", "munmap", "remap_file_pages", "shmat",
                    "syscall", "dlopen", "dlmopen", "process_vm_writev"))
_TRUSTED = ("libc.so.", "libm.so.", "libmvec.so.", "libpthread.so.", "libdl.so.", "librt.so.", "ld-linux-x86-64.so.",
            "libstdc++.so.", "libgcc_s.so.", "libgfortran.so.", "libquadmath.so.", "libgomp.so.", "libomp.so.")
_SYSTEM_CALLS = (b"\x0f\x05", b"\x0f\x34", b"\xcd\x80")  # syscall, sysenter, int 0x80
_MOST_TEXT = 1 << 24  # bytes of one file


def may_change_its_text(pid: int) -> bool:
    """Whether the process ``pid`` may change its machine code, as far as its files tell."""
    try:
        code = [m for m in mappings(pid) if m.executable and not m.path.startswith("[")]
    except Rejected:
        return True
    files = {m.path for m in code}
    return any(not _is_trusted(path) and _may_change(path) for path in files)


def _is_trusted(path: str) -> bool:
    return os.path.basename(path).startswith(_TRUSTED)


def _may_change(path: str) -> bool:
    try:
        with Image(path) as image:
            names = imports(image)
            if not names or not _MEANS.isdisjoint(names):  # none: it is static
                return True
            text = [s for s in image.segments if s.kind == PT_LOAD and s.flags & PF_X]
            return any(s.file_size > _MOST_TEXT or _calls_itself(image.read(s.offset, s.file_size)) for s in text)
    except (ElfError, OSError):
        return True


def _calls_itself(text: bytes) -> bool:
    return any(call in text for call in _SYSTEM_CALLS)
