"""Tables for kernels that numba compiles: rows of 64-bit numbers, hash tables with open addressing, growth, intrinsics.

Kernels work on pointers, since numba counts references to arrays at every call, which costs more than the work of the
called function.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numba
import numpy
import numpy.typing
from llvmlite import ir
from numba.core import cgutils

from memopt.traces.core.compiler import kernel
from memopt.traces.core.format import PAGE, Words

Array = numpy.typing.NDArray[numpy.int64]

_MAP_NORESERVE = 0x4000  # mmap(2): no swap space is reserved for it, nor for a child that inherits it
_MADV_POPULATE_WRITE = 23  # madvise(2)
_LIBRARY = ctypes.CDLL(None)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE


@numba.extending.intrinsic
def pointer(_typing, _address):
    """A pointer to 64-bit numbers at an address. Unlike an array, it costs nothing to pass on."""
    kind = numba.types.CPointer(numba.types.int64)

    def generate(context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(numba.types.int64), generate


@numba.extending.intrinsic
def behind(_typing, table, _count):
    """A pointer, advanced by a count of 64-bit numbers."""
    def generate(_context, builder, _signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return table(table, numba.types.int64), generate


@numba.extending.intrinsic
def prefetch(_typing, _table, _place):
    """Prefetches the cache line of the number at a place of a table, for writing, into all caches."""
    def generate(context, builder, _signature, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(fetch, [place, number(1), number(3), number(1)])  # for writing, into all caches, data
        return context.get_dummy_value()

    return numba.types.void(_table, numba.types.int64), generate


@numba.extending.intrinsic
def likely(_typing, _condition):
    """Marks a condition that nearly always holds (``llvm.expect``), so that the rare path costs no registers elsewhere.
    """
    def generate(_context, builder, _signature, arguments):
        bit = ir.IntType(1)
        expect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bit, [bit, bit]), "llvm.expect.i1")
        return builder.call(expect, [arguments[0], bit(1)])

    return numba.types.boolean(numba.types.boolean), generate


@numba.extending.intrinsic
def count_bits(_typing, _number):
    """How many bits of a number are 1."""
    def generate(_context, builder, _signature, arguments):
        return builder.ctpop(arguments[0])

    return numba.types.int64(numba.types.int64), generate


@numba.extending.intrinsic
def lowest_bit(_typing, _number):
    """The index of the lowest bit that is 1. Precondition: the number is not 0."""
    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return numba.types.int64(numba.types.int64), generate


@kernel(forceinline=True)
def slot(table, width, places, one, two):
    """The place in a hash table of the row that begins with the pair (``one``, ``two``), or of the free row for it,
    which has -1 in its second column. ``places``: how many rows the table has, a power of two.
    """
    mask = places - 1
    at = ((one * 0x1E3779B97F4A7C15 ^ two * 0x42B2AE3D27D4EB4F) >> 40) & mask
    while table[width * at + 1] != -1 and (table[width * at] != one or table[width * at + 1] != two):
        at = (at + 1) & mask
    return at


def new_table(size: int, columns: int) -> Array:
    """An empty hash table."""
    made = numpy.zeros((size, columns), numpy.int64)
    made[:, 1] = -1
    return made


def larger(old: Array) -> Array:
    """A hash table with the same rows and twice as many places."""
    made = new_table(2 * len(old), old.shape[1])
    _move(old, made, len(old), old.shape[1])
    return made


@kernel()
def _move(old, made, places, width):
    target = pointer(made.ctypes.data)
    for row in range(places):
        if old[row, 1] != -1:
            made[slot(target, width, 2 * places, old[row, 0], old[row, 1])] = old[row]


def zeros(size: int, columns: int) -> Array:
    """A table of zeros, from the start of a page on, whose memory is allocated when it is touched first. Raises
    MemoryError.

    It is made of small pages. numpy asks for huge ones, which the system may have to make room for when they are
    touched first: that took 1 to 4 ms each, up to half of the time in which a trace was read.
    """
    if not size:
        return numpy.zeros((0, columns), numpy.int64)
    try:
        memory = mmap.mmap(-1, 8 * size * columns, flags=_FLAGS)
    except OSError as error:
        raise MemoryError(str(error)) from None
    return numpy.frombuffer(memory, numpy.int64).reshape(size, columns)


def bring_in(table: Array, first: int, behind: int) -> None:
    """Allocates the memory of the rows from ``first`` to ``behind`` of a table made by ``zeros``, which will be used
    soon. Does nothing on systems that cannot do it (before Linux 5.14). Touching the pages one by one takes three times
    as long.
    """
    row, start = 8 * table.shape[1], table.ctypes.data
    begin, end = row * first // PAGE * PAGE, row * min(behind, len(table)) // PAGE * PAGE
    if end > begin:
        _LIBRARY.madvise(ctypes.c_void_p(start + begin), ctypes.c_size_t(end - begin), _MADV_POPULATE_WRITE)


def longer(array: Array, used: int | None = None) -> Array:
    """A table with the same rows and room for twice as many. ``used``: how many rows are in use, if not all; the memory
    of the others is not touched.
    """
    made = zeros(2 * len(array), array.shape[1])
    rows = len(array) if used is None else used
    made[:rows] = array[:rows]
    return made


def extended(array: Array, rows: Sequence[Sequence[int]]) -> Array:
    """The array with ``rows`` behind its own."""
    return array if not rows else numpy.concatenate((array, numpy.array(rows, numpy.int64)))


def addresses(tables: Sequence[Array]) -> Array:
    """The addresses of the tables."""
    return numpy.array([table.ctypes.data for table in tables], numpy.int64)


def joined(rest: Array, words: Words) -> Array:
    """The words left over from the last buffer, then the new ones. The new ones are copied only if some were left over.
    """
    following: Array = words.view(numpy.int64)
    return numpy.concatenate((rest, following)) if len(rest) else following


@kernel()
def sort(keys, start, count):
    """Sorts ``count`` keys from ``start`` on, in place (Shell, A high-speed sorting procedure, 1959; gaps by Knuth)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap:
        for n in range(start + gap, start + count):
            key, to = keys[n], n
            while to >= start + gap and keys[to - gap] > key:
                keys[to] = keys[to - gap]
                to -= gap
            keys[to] = key
        gap //= 3
