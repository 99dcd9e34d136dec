"""The CPUID and XGETBV instructions, called from Python through a page of machine code.

Example: ``cpuid(7).ebx >> 16 & 1`` is the AVX-512F bit.

In: leaf and subleaf. Out: the four registers of CPUID, the value of XCR0, the processor's name. The page is written
first and made executable afterwards; it is never writable and executable at once.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache

from memopt.ir.frozen import dataclass

# void cpuid(u32 leaf: edi, u32 subleaf: esi, u32 out[4]: rdx); rbx is the caller's (System V ABI).
_CPUID = bytes.fromhex(
    "53"  # push rbx
    "89f8 89f1 4989d0"  # mov eax, edi; mov ecx, esi; mov r8, rdx
    "0fa2"  # cpuid
    "418900 41895804 41894808 4189500c"  # mov [r8+0/4/8/12], eax/ebx/ecx/edx
    "5b c3"  # pop rbx; ret
)
# u64 xgetbv(u32 index: edi)
_XGETBV = bytes.fromhex("89f9 0f01d0 48c1e220 4809d0 c3")  # mov ecx, edi; xgetbv; shl rdx, 32; or rax, rdx; ret
_XGETBV_OFFSET = 64

_OSXSAVE = 27  # CPUID.1:ECX, Intel SDM vol. 2A, CPUID


@dataclass(frozen=True, slots=True)
class Registers:
    """The four registers that CPUID returns for one leaf."""

    eax: int = 0
    ebx: int = 0
    ecx: int = 0
    edx: int = 0


@cache
def _page() -> tuple[mmap.mmap, int]:
    """The executable page and its address; kept for the life of the process."""
    if os.uname().machine != "x86_64":
        raise OSError("CPUID needs an x86-64 processor")
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[: len(_CPUID)] = _CPUID
    page[_XGETBV_OFFSET : _XGETBV_OFFSET + len(_XGETBV)] = _XGETBV
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if libc.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "mprotect of the CPUID page")
    return page, address


def cpuid(leaf: int, subleaf: int = 0) -> Registers:
    """CPUID for ``leaf`` and ``subleaf``; all zero for a leaf that the processor does not have.

    Raises ``OSError`` where the system refuses an executable page (MDWE, hardened kernels), or on another architecture.
    """
    if leaf > _raw(leaf & 0x8000_0000, 0).eax:
        return Registers()
    return _raw(leaf, subleaf)


def _raw(leaf: int, subleaf: int) -> Registers:
    function = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(_page()[1])
    out = (ctypes.c_uint32 * 4)()
    function(leaf, subleaf, ctypes.addressof(out))
    return Registers(*out)


def xcr0() -> int:
    """XCR0: the state components that the operating system has enabled; 0 where XGETBV does not exist.

    XGETBV would fault there. Raises ``OSError`` as ``cpuid``.
    """
    if not cpuid(1).ecx >> _OSXSAVE & 1:
        return 0
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32)(_page()[1] + _XGETBV_OFFSET)(0))


def brand() -> str:
    """The processor's brand string; "" where it has none. Raises ``OSError`` as ``cpuid``."""
    if cpuid(0x8000_0000).eax < 0x8000_0004:
        return ""
    leaves = [cpuid(leaf) for leaf in (0x8000_0002, 0x8000_0003, 0x8000_0004)]
    words = [word for r in leaves for word in (r.eax, r.ebx, r.ecx, r.edx)]
    raw = b"".join(word.to_bytes(4, "little") for word in words)
    return " ".join(raw.split(b"\0")[0].decode("ascii", "replace").split())
