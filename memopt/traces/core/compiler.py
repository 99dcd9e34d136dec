"""Compiles the kernels with numba, and keeps the compiled code under a hash of all sources of memopt.traces.

numba's own cache checks only the date of the file that defines a function, although functions of other files are
compiled into it. It also does not lock: of two processes that compile at the same time, each can find the other's code
under its own name (numba.core.caching, IndexDataCacheFile.save). Here the key is a hash of all files of the folder, and
a lock is held. Invariant: all that a kernel is compiled from stands in this folder. What is kept is executed: nothing
is loaded from a folder that others can write to, nor is numba's configuration from the working directory.

A rule for kernels: numba zeroes the return slot of every call that is not inlined at the entry of the calling function,
even if the call is never reached. A rare call therefore stands in an inlined helper named ``_rarely_...``, so that only
the rare path pays for it.
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
from numba.core import caching, config

from memopt.private_files import trusted
from memopt.traces.core.sources import lock_of, sources

_STAMP = sources()

config._config_fname = ""  # .numba_config.yaml, which may name the folder that compiled code is loaded from
config.reload_config()


class Kept(caching.IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """The compiled code of one function, by the types of its arguments, with a lock for reading and writing."""

    def save(self, key: object, data: object) -> None:
        """Writes the code for the key, under the lock, and enters it in the index."""
        with self._locked(fcntl.LOCK_EX):
            names = self._load_index()
            if key not in names:
                used = set(names.values())
                names[key] = next(name for name in map(self._data_name, count(1)) if name not in used)
            self._save_data(names[key], data)  # first, so that the index never names code that is not there
            self._save_index(names)

    def load(self, key: object) -> object:
        """Reads the code for the key, under the lock."""
        with self._locked(fcntl.LOCK_SH):
            return super().load(key)

    def _load_index(self) -> dict[object, str]:
        """The index; empty if another version of the code has written it and it cannot be loaded."""
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
    """Decorator that compiles a function with numba. ``forceinline``: inline it into its callers. ``nogil``: release
    the interpreter lock while it runs.
    """
    def compiled(function: Callable[..., Any]) -> Any:
        made: Any = numba.njit(forceinline=forceinline, nogil=nogil)(function)
        try:
            made.enable_caching()
        except RuntimeError:  # there is no folder to keep it in that can be written to
            return made
        cache = made._cache
        if not _only_ours(cache.cache_path, function.__code__.co_filename):
            return numba.njit(forceinline=forceinline, nogil=nogil)(function)
        cache._cache_file = Kept(cache.cache_path, cache._impl.filename_base, _STAMP)
        return made
    return compiled


def _only_ours(folder: str, source: str) -> bool:
    """Whether ``folder`` is beside ``source``, where Python's own compiled code is too, or nobody else can write to it.
    """
    beside = os.path.dirname(os.path.realpath(source)) + os.sep
    return os.path.realpath(folder).startswith(beside) or trusted(folder)
