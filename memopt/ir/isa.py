"""The instruction sets that new code is made for."""

from __future__ import annotations

from enum import Enum


class Isa(Enum):
    SSE2 = "sse2"
    AVX2 = "avx2"
    AVX512 = "avx512"

    @property
    def vector_bytes(self) -> int:
        return {"sse2": 16, "avx2": 32, "avx512": 64}[self.value]

    @property
    def registers(self) -> int:
        return 32 if self is Isa.AVX512 else 16
