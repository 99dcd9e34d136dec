"""Functions that allocate memory, by name, and which of their arguments give the size (C17, 7.22.3; malloc(3))."""

from __future__ import annotations

from collections.abc import Mapping

FIRST, PRODUCT, SECOND = 1, 2, 3  # the size is the first argument, the product of both, or the second one
_ALLOCATORS: Mapping[str, int] = {"malloc": FIRST, "valloc": FIRST, "calloc": PRODUCT, "realloc": SECOND,
                                  "aligned_alloc": SECOND, "memalign": SECOND}


def allocates(function: str) -> int:
    """Which of the first two arguments of a function of this name give the size of the block: FIRST, PRODUCT or SECOND;
    0 if it does not allocate.

    Leading underscores and ``libc_`` are ignored, so ``__libc_malloc`` counts as ``malloc``. The allocators of C++ and
    Fortran call these functions and need no entry of their own.
    """
    return _ALLOCATORS.get(function.lstrip("_").removeprefix("libc_"), 0)
