"""A version written by hand for the worker's loop: it counts in the statistics page and goes on in the original."""

from __future__ import annotations

from memopt.ir.code import STATISTICS_ENTRIES, STATISTICS_RUNS
from runtime.patching.code_cache import CodeCache
from runtime.patching.install import Patch, jump
from runtime.target.tracee import Tracee

HEADER_BYTES = bytes.fromhex("b801000000")  # mov eax, 1


def code(cache: CodeCache, header: int, displaced: bytes = HEADER_BYTES) -> bytes:
    """Two counters, the displaced bytes, a jump behind them. Flags are dead at the worker's header."""
    place = cache.placement
    text = b""
    for counter in (STATISTICS_ENTRIES, STATISTICS_RUNS):
        end = place.code + len(text) + 8
        text += b"\xf0\x48\xff\x05" + (place.statistics + counter - end).to_bytes(4, "little", signed=True)  # lock inc
    text += displaced
    end = place.code + len(text) + 5
    return text + b"\xe9" + (header + len(displaced) - end).to_bytes(4, "little", signed=True)


def prepare(tracee: Tracee, header: int, displaced: bytes = HEADER_BYTES) -> tuple[CodeCache, Patch]:
    """The version in a new cache of the stopped target, and the patch that would lead to it."""
    cache = CodeCache.create(tracee, header, 4096, 4096)
    cache.write_code(code(cache, header, displaced), tracee)
    short = jump(header, cache.placement.code, displaced)
    filler = b"\x90" * (len(displaced) - 5)
    return cache, Patch(header, displaced, short.replacement + filler)
