"""Functions that allocate memory, by their names (C17, 7.22.3; malloc(3))."""

from __future__ import annotations

from collections.abc import Mapping

FIRST, PRODUCT, SECOND = 1, 2, 3  # what the size is, of the two arguments
_ALLOCATORS: Mapping[str, int] = {"malloc": FIRST, "valloc": FIRST, "calloc": PRODUCT, "realloc": SECOND,
                                  "aligned_alloc": SECOND, "memalign": SECOND}


def allocates(function: str) -> int:
    """0, or how the size follows from the arguments of a function of this name; __libc_malloc is malloc as well. Those
    that allocate for C++ and Fortran call these."""
    return _ALLOCATORS.get(function.lstrip("_").removeprefix("libc_"), 0)
