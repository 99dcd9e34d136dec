"""How the kernels here are compiled, and where what was compiled is kept.

numba keeps code by the date of the one file a function stands in, though functions of other files are part of it, and
takes no care of processes that compile at the same time: each can find the other's code under the name of its own
(numba.core.caching, IndexDataCacheFile.save). Here it is kept by what all files of this folder say, and under a lock.
Invariant: what a kernel is compiled from stands in this folder.

What a call returns that is not inlined, numba clears where the function begins that makes the call, whether or not it
comes to that. A call that is rare in a function that is not stands therefore in an inlined one of its own, named
``_rarely_``: it is cleared there.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numba
from numba.core import caching

from memopt.traces.core.sources import lock_of, sources

_STAMP = sources()


class Kept(caching.IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """What there is of one function: code by the types of its arguments."""

    def save(self, key: object, data: object) -> None:
        with self._locked(fcntl.LOCK_EX):
            names = self._load_index()
            if key not in names:
                used = set(names.values())
                names[key] = next(name for name in map(self._data_name, count(1)) if name not in used)
            self._save_data(names[key], data)  # first, so that the index never tells of code that is not there
            self._save_index(names)

    def load(self, key: object) -> object:
        with self._locked(fcntl.LOCK_SH):
            return super().load(key)

    def _load_index(self) -> dict[object, str]:
        """Nothing where another version has named what this one has no name for."""
        try:
            found: dict[object, str] = super()._load_index()
        except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
            return {}
        return found

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with open(os.path.join(self._cache_path, lock_of(_STAMP)), "a", encoding="ascii") as lock:
            fcntl.flock(lock, how)
            yield


def kernel(*, forceinline: bool = False, nogil: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Decorates what numba is to compile. ``forceinline``: into what calls it; ``nogil``: others run meanwhile."""
    def compiled(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(forceinline=forceinline, nogil=nogil)(function)
        try:
            made.enable_caching()
        except RuntimeError:  # no folder to keep it in can be written to
            return made
        cache = made._cache
        cache._cache_file = Kept(cache.cache_path, cache._impl.filename_base, _STAMP)
        return made
    return compiled
