"""The instruction sets that new code is made for."""

from __future__ import annotations

from enum import Enum


class Isa(Enum):
    """An instruction set with vectors, from narrow to wide."""

    SSE2 = "sse2"
    AVX2 = "avx2"
    AVX512 = "avx512"

    @property
    def vector_bytes(self) -> int:
        """The width of a vector register, in bytes."""
        return {"sse2": 16, "avx2": 32, "avx512": 64}[self.value]

    @property
    def registers(self) -> int:
        """How many vector registers there are."""
        return 32 if self is Isa.AVX512 else 16
