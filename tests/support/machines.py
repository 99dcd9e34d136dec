"""Machine descriptions that do not depend on where the tests run."""

from __future__ import annotations

from memopt.machine.description import CacheLevel, Machine

_SSE, _AVX = ("sse2", "sse4.1"), ("avx", "fma", "avx2", "bmi2")
_AVX512 = ("avx512f", "avx512dq", "avx512bw", "avx512vl")

ZEN5 = Machine(
    levels=(
        CacheLevel("L1d", 1, 48 << 10, 64, 12, 1),
        CacheLevel("L2", 2, 1 << 20, 64, 16, 1),
        CacheLevel("L3", 3, 32 << 20, 64, 16, 2),
    ),
    page_size=4096,
    extensions=_SSE + _AVX + _AVX512,
    xcr0=0xE7,
    model="AMD EPYC",
    cores=2,
    frequency=2596,
)

# A desktop processor of 2013, and a small virtual machine that shows one cache level and no AVX.
HASWELL = Machine(
    levels=(
        CacheLevel("L1d", 1, 32 << 10, 64, 8, 2),
        CacheLevel("L2", 2, 256 << 10, 64, 8, 2),
        CacheLevel("L3", 3, 8 << 20, 64, 16, 8),
    ),
    page_size=4096,
    extensions=_SSE + _AVX,
    xcr0=0x7,
    model='Core "i7"',
    cores=8,
)
SMALL = Machine((CacheLevel("L1d", 1, 32 << 10, 64, 8, 1),), 4096, ("sse2",), 0x3, "x86-64", 1)
