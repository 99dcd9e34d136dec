"""Tables for kernels that numba compiles: rows of 64-bit numbers, open addressing, growth.

Kernels work on pointers: numba counts references to arrays at every call, which costs more than what is done there.
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

_MAP_NORESERVE = 0x4000  # mmap(2): the system need not be able to give all of it, not even to a child
_MADV_POPULATE_WRITE = 23  # madvise(2)
_LIBRARY = ctypes.CDLL(None)
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE


@numba.extending.intrinsic
def pointer(_typing, _address):
    """To 64-bit numbers at an address: unlike arrays, pointers cost nothing to hand on."""
    kind = numba.types.CPointer(numba.types.int64)

    def generate(context, builder, _signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(numba.types.int64), generate


@numba.extending.intrinsic
def behind(_typing, table, _count):
    """The table so many numbers behind another one."""
    def generate(_context, builder, _signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return table(table, numba.types.int64), generate


@numba.extending.intrinsic
def prefetch(_typing, _table, _place):
    """Of a table behind a pointer, the cache line that the number at ``place`` is in will be used."""
    def generate(context, builder, _signature, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(fetch, [place, number(1), number(3), number(1)])  # to write, into all caches, data
        return context.get_dummy_value()

    return numba.types.void(_table, numba.types.int64), generate


@numba.extending.intrinsic
def likely(_typing, _condition):
    """A condition that nearly always holds: what is done where it does not costs no registers elsewhere."""
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
    """Which is the lowest bit of a number that is 1; some are."""
    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return numba.types.int64(numba.types.int64), generate


@kernel(forceinline=True)
def slot(table, width, places, one, two):
    """Where the row is that begins with the pair, or the free one for it (-1 in its second column)."""
    mask = places - 1
    at = ((one * 0x1E3779B97F4A7C15 ^ two * 0x42B2AE3D27D4EB4F) >> 40) & mask
    while table[width * at + 1] != -1 and (table[width * at] != one or table[width * at + 1] != two):
        at = (at + 1) & mask
    return at


def new_table(size: int, columns: int) -> Array:
    made = numpy.zeros((size, columns), numpy.int64)
    made[:, 1] = -1
    return made


def larger(old: Array) -> Array:
    """The same rows in a table of twice as many places."""
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
    """In memory that is not there before it is used, from the start of a page on. Raises MemoryError.

    In small pages: numpy asks for huge ones, which the system may have to make room for when they are touched first;
    that has taken it 1 to 4 ms each, up to half of the time in which a trace was read.
    """
    if not size:
        return numpy.zeros((0, columns), numpy.int64)
    try:
        memory = mmap.mmap(-1, 8 * size * columns, flags=_FLAGS)
    except OSError as error:
        raise MemoryError(str(error)) from None
    return numpy.frombuffer(memory, numpy.int64).reshape(size, columns)


def bring_in(table: Array, first: int, behind: int) -> None:
    """Rows of a table made by ``zeros`` will be used soon: their memory is there from now on, if the system can do that
    (since Linux 5.14). Touched page by page, it would cost three times as much."""
    row, start = 8 * table.shape[1], table.ctypes.data
    begin, end = row * first // PAGE * PAGE, row * min(behind, len(table)) // PAGE * PAGE
    if end > begin:
        _LIBRARY.madvise(ctypes.c_void_p(start + begin), ctypes.c_size_t(end - begin), _MADV_POPULATE_WRITE)


def longer(array: Array, used: int | None = None) -> Array:
    """``used``: of its rows, if not all; memory of others is not touched."""
    made = zeros(2 * len(array), array.shape[1])
    rows = len(array) if used is None else used
    made[:rows] = array[:rows]
    return made


def extended(array: Array, rows: Sequence[Sequence[int]]) -> Array:
    return array if not rows else numpy.concatenate((array, numpy.array(rows, numpy.int64)))


def addresses(tables: Sequence[Array]) -> Array:
    return numpy.array([table.ctypes.data for table in tables], numpy.int64)


def joined(rest: Array, words: Words) -> Array:
    """What was left of a piece of a trace, and the next one, which is copied only where something was left."""
    following: Array = words.view(numpy.int64)
    return numpy.concatenate((rest, following)) if len(rest) else following


@kernel()
def sort(keys, start, count):
    """Of the keys from ``start`` on, so many, in place (Shell, A high-speed sorting procedure, 1959; Knuth's gaps)."""
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
