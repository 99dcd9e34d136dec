"""Statements of any scop run one instance after the other, in their order, by scalar instructions: the reference.

Instances and addresses are enumerated here; the operations are done by a small stack machine in C, one instruction in
inline assembly for each floating-point operator. It shares nothing with the code under test.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from memopt.ir.linear import Linear
from memopt.ir.operations import PREDICATES
from memopt.ir.scop import (
    LIMIT,
    ROUNDS,
    Access,
    Apply,
    Constant,
    ElementType,
    Expression,
    Index,
    Read,
    Scalar,
    Scop,
    Statement,
)
from tests.support.inprocess import MXCSR_DEFAULT

_C = {"f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t"}
_INTEGERS = [e for e in ElementType if not e.is_float]
_FLOATS = [e for e in ElementType if e.is_float]
_CONVERSIONS = {"i32tof64": ("int32_t", "double", "cvtsi2sdl", "x", "r"),
                "i64tof64": ("int64_t", "double", "cvtsi2sdq", "x", "r"),
                "i32tof32": ("int32_t", "float", "cvtsi2ssl", "x", "r"),
                "i64tof32": ("int64_t", "float", "cvtsi2ssq", "x", "r"),
                "f32to64": ("float", "double", "cvtss2sd", "x", "x"),
                "f64to32": ("double", "float", "cvtsd2ss", "x", "x"),
                "f64toi32z": ("double", "int32_t", "cvttsd2si", "r", "x"),
                "f64toi64z": ("double", "int64_t", "cvttsd2siq", "r", "x"),
                "f32toi32z": ("float", "int32_t", "cvttss2si", "r", "x"),
                "f32toi64z": ("float", "int64_t", "cvttss2siq", "r", "x"),
                "f64toi32": ("double", "int32_t", "cvtsd2si", "r", "x"),
                "f64toi64": ("double", "int64_t", "cvtsd2siq", "r", "x"),
                "f32toi32": ("float", "int32_t", "cvtss2si", "r", "x"),
                "f32toi64": ("float", "int64_t", "cvtss2siq", "r", "x")}


def _cases() -> Iterator[tuple[str, str]]:
    """Operator and type of its operands, and C code on the stack ``s`` whose top is ``s[-1]``."""
    def typed(kind: str, count: int, body: str) -> str:
        loads = "".join(f"{kind} {n}; memcpy(&{n}, &s[{i - count}], sizeof {n}); " for i, n in enumerate("abc"[:count]))
        return f"{{ {loads}{body} s -= {count - 1}; }}"

    def result(kind: str, expression: str) -> str:
        return f"{kind} r = {expression}; uint64_t w = 0; memcpy(&w, &r, sizeof r);"

    for element in _FLOATS:
        kind, suffix, bits = _C[element.value], {8: "sd", 4: "ss"}[element.size], 8 * element.size
        for name in ("add", "sub", "mul", "div", "min", "max"):
            yield f"{name} {element.value}", typed(
                kind, 2, f'asm volatile("{name}{suffix} %1, %0" : "+x"(a) : "x"(b)); '
                + result(kind, "a") + "s[-2] = w;")
        yield f"sqrt {element.value}", typed(kind, 1, f'asm volatile("sqrt{suffix} %1, %0" : "+x"(a) : "x"(a)); '
                                             + result(kind, "a") + "s[-1] = w;")
        for name, number in ROUNDS.items():
            yield f"{name} {element.value}", typed(
                kind, 1, f'asm volatile("round{suffix} ${number}, %1, %0" : "+x"(a) : "x"(a)); '
                + result(kind, "a") + "s[-1] = w;")
        for name, code in (("neg", f"s[-1] ^= 1ull << {bits - 1};"), ("abs", f"s[-1] &= ~(1ull << {bits - 1});")):
            yield f"{name} {element.value}", f"{{ {code} }}"
        for name, number in PREDICATES.items():
            spelled = f"cmp{suffix} ${number}, %1, %0" if number < 8 else f"vcmp{suffix} ${number}, %1, %0, %0"
            yield f"{name} {element.value}", typed(
                kind, 2, f'asm volatile("{spelled}" : "+x"(a) : "x"(b)); uint64_t w = 0; '
                "memcpy(&w, &a, sizeof a); s[-2] = w & 1;")
        for name, spelled in (("fma", "fmadd"), ("fms", "fmsub"), ("fnma", "fnmadd"), ("fnms", "fnmsub")):
            yield f"{name} {element.value}", typed(
                kind, 3, f'asm volatile("v{spelled}231{suffix} %2, %1, %0" : "+x"(c) : "x"(a), "x"(b)); '
                + result(kind, "c") + "s[-3] = w;")
    for name, (source, kind, spelled, to, of) in _CONVERSIONS.items():
        origin = next(e for e, c in _C.items() if c == source)
        yield f"{name} {origin}", typed(
            source, 1, f'{kind} q = 0; asm volatile("{spelled} %1, %0" : "={to}"(q) : "{of}"(a)); '
            + result(kind, "q") + "s[-1] = w;")
    for element in _INTEGERS:
        kind, unsigned = _C[element.value], "u" + _C[element.value]
        for name, text in (("add", "a + b"), ("sub", "a - b"), ("mul", "(uint64_t)a * b"), ("shl", "(uint64_t)a << b"),
                           ("shr", "a >> b"), ("umin", "a < b ? a : b"), ("umax", "a > b ? a : b"),
                           ("eq", "a == b"), ("ult", "a < b"), ("ule", "a <= b")):
            yield f"{name} {element.value}", typed(unsigned, 2, result(unsigned, text) + " s[-2] = w;")
        for name, text in (("sar", "a >> b"), ("smin", "a < b ? a : b"), ("smax", "a > b ? a : b"), ("slt", "a < b"),
                           ("sle", "a <= b")):
            yield f"{name} {element.value}", typed(kind, 2, result(kind, text) + " s[-2] = w;")
        for to in _INTEGERS:
            if to.size > element.size:
                yield f"sext{to.value} {element.value}", typed(kind, 1, result(_C[to.value], "a") + " s[-1] = w;")
                yield f"zext{to.value} {element.value}", typed(unsigned, 1, result(_C[to.value], "a") + " s[-1] = w;")
            elif to.size < element.size:
                yield f"trunc{to.value} {element.value}", typed(kind, 1, result(_C[to.value], "a") + " s[-1] = w;")
    for element in ElementType:
        ones = f"{(1 << 8 * element.size) - 1:#x}ull"
        for name, text in (("and", "s[-2] & s[-1]"), ("or", "s[-2] | s[-1]"), ("xor", "s[-2] ^ s[-1]"),
                           ("andnot", "~s[-2] & s[-1]")):
            yield f"{name} {element.value}", f"{{ s[-2] = {text}; s -= 1; }}"
        yield f"not {element.value}", f"{{ s[-1] = ~s[-1] & {ones}; }}"
        yield f"bits {element.value}", "{ }"
        yield f"beside {element.value}", "{ s -= 1; }"
    for name, text in (("and", "s[-2] & s[-1]"), ("or", "s[-2] | s[-1]"), ("xor", "s[-2] ^ s[-1]")):
        yield f"{name} truth", f"{{ s[-2] = {text}; s -= 1; }}"
    yield "not truth", "{ s[-1] ^= 1; }"
    yield "select", "{ s[-3] = s[-3] ? s[-2] : s[-1]; s -= 2; }"


@cache
def _machine() -> tuple[ctypes.CDLL, dict[str, int]]:
    cases = list(_cases())
    numbers = {name: n + 16 for n, (name, _) in enumerate(cases)}
    source = """#include <stdint.h>
#include <string.h>
#include <xmmintrin.h>
/* row: program, write address, then addresses and numbers. code: pairs (operation, argument), ended by operation 0.
   log: the addresses that are read, and those that are written, negated. */
unsigned run(long rows, long width, long *table, long **programs, long *sizes, unsigned mxcsr, long *log,
             long *logged) {
unsigned saved = _mm_getcsr(); _mm_setcsr(mxcsr); long n = 0;
for (long i = 0; i < rows; i++) { long *row = table + i * width; uint64_t stack[64], *s = stack; int passed_over = 0;
for (long *p = programs[row[0]]; p[0]; p += 2) {
if (p[0] <= 4 || (p[0] >= 9 && p[0] <= 12 && s[-1])) log[n++] = row[p[1]];
switch (p[0]) {
case 1: *s++ = *(uint8_t *)row[p[1]]; break; case 2: *s++ = *(uint16_t *)row[p[1]]; break;
case 3: *s++ = *(uint32_t *)row[p[1]]; break; case 4: *s++ = *(uint64_t *)row[p[1]]; break;
case 8: passed_over = !s[-2]; s[-2] = s[-1]; s -= 1; break;
case 9: if (s[-1]) s[-1] = *(uint8_t *)row[p[1]]; break; case 10: if (s[-1]) s[-1] = *(uint16_t *)row[p[1]]; break;
case 11: if (s[-1]) s[-1] = *(uint32_t *)row[p[1]]; break; case 12: if (s[-1]) s[-1] = *(uint64_t *)row[p[1]]; break;
case 5: *s++ = p[1]; break; case 6: *s++ = row[p[1]]; break; case 7: *s++ = (uint32_t)row[p[1]]; break;
""" + "\n".join(f"case {numbers[name]}: {code} break;" for name, code in cases) + """
}} if (!passed_over) { log[n++] = -row[1]; memcpy((void *)row[1], &s[-1], sizes[row[0]]); } }
*logged = n; asm volatile("" ::: "memory"); unsigned after = _mm_getcsr(); _mm_setcsr(saved); return after; }"""
    folder = Path(tempfile.mkdtemp(prefix="memopt-scalar-"))
    target = folder / "machine.so"
    subprocess.run(["gcc", "-O1", "-w", "-fno-strict-aliasing", "-mfma", "-shared", "-fPIC", "-x", "c", "-", "-o",
                    str(target)], input=source.encode(), check=True)
    return ctypes.CDLL(str(target)), numbers


def instances(statement: Statement, values: Mapping[str, int]) -> np.ndarray:
    """The points of the statement's domain, one a row; ``values``: symbols, H among them."""
    points: list[tuple[int, ...]] = []
    names = [d.name for d in statement.dimensions]

    def visit(depth: int, point: dict[str, int]) -> None:
        if depth == len(names):
            if all(c.evaluate(point) >= 0 for c in statement.conditions):
                points.append(tuple(point[n] for n in names))
            return
        trips = statement.dimensions[depth].trips if depth else Linear.symbol(LIMIT)
        for number in range(trips.evaluate(point)):
            visit(depth + 1, point | {names[depth]: number})

    visit(0, dict(values))
    return np.array(points, dtype=np.int64).reshape(len(points), len(names))


def run(scop: Scop, values: Mapping[str, int], scalars: Sequence[int] = (),
        mxcsr: int = MXCSR_DEFAULT) -> tuple[int, np.ndarray, np.ndarray]:
    """All instances in program order; ``values``: every symbol, base addresses among them (a private array's address
    under its own name). Returns MXCSR at the end, the addresses that were read, and those that were written."""
    machine, numbers = _machine()
    width = 2 + max(len(s.reads) + len(_numbers(s.expression)) for s in scop.statements)
    depth = max(len(s.position) for s in scop.statements)
    rows, keys, programs = [], [], []
    for number, statement in enumerate(scop.statements):
        points = instances(statement, values)
        names = [d.name for d in statement.dimensions]
        row = np.zeros((len(points), width), dtype=np.int64)
        row[:, 0] = number
        columns = [_address(scop, a, values) for a in (statement.write, *statement.reads)]
        for column, value in enumerate((*columns, *_numbers(statement.expression)), 1):
            row[:, column] = _column(value, names, points, values)
        key = np.full((len(points), 2 * depth), -1, dtype=np.int64)
        key[:, 0:2 * len(statement.position):2] = statement.position
        key[:, 1:2 * len(names):2] = points
        rows.append(row)
        keys.append(key)
        programs.append([*_program(scop, statement, numbers, scalars), 0, 0])
    key = np.concatenate(keys)
    table = np.ascontiguousarray(np.concatenate(rows)[np.lexsort(key.T[::-1])])
    arrays = [(ctypes.c_long * len(p))(*[v - (1 << 64) if v >> 63 else v for v in p]) for p in programs]
    pointers = (ctypes.c_void_p * len(arrays))(*[ctypes.addressof(a) for a in arrays])
    sizes = (ctypes.c_long * len(arrays))(*[scop.array(s.write.array).element.size for s in scop.statements])
    log, logged = np.zeros(len(table) * max(map(len, programs)) + 1, dtype=np.int64), ctypes.c_long()
    flags = int(machine.run(ctypes.c_long(len(table)), ctypes.c_long(width), ctypes.c_void_p(table.ctypes.data),
                            pointers, sizes, ctypes.c_uint32(mxcsr), ctypes.c_void_p(log.ctypes.data),
                            ctypes.byref(logged)))
    log = log[:logged.value]
    return flags, np.unique(log[log > 0]), np.unique(-log[log < 0])


def addresses(scop: Scop, statement: Statement, access: Access, points: np.ndarray,
              values: Mapping[str, int]) -> np.ndarray:
    """Of one access at each of the points."""
    return _column(_address(scop, access, values), [d.name for d in statement.dimensions], points, values)


def _column(value: Linear, names: list[str], points: np.ndarray, values: Mapping[str, int]) -> np.ndarray:
    inner = points @ np.array([value.coefficient(n) for n in names], dtype=np.int64)
    return inner + value.without(*names).evaluate(values)


def _address(scop: Scop, access: Access, values: Mapping[str, int]) -> Linear:
    array = scop.array(access.array)
    base = Linear.of(values[array.name]) if array.private else array.base
    return sum((u * s for u, s in zip(access.subscripts, array.strides, strict=True)), base)


def _numbers(expression: Expression) -> list[Linear]:
    if isinstance(expression, Index):
        return [expression.value]
    if isinstance(expression, Apply):
        return [n for o in expression.operands for n in _numbers(o)]
    return []


def _program(scop: Scop, statement: Statement, numbers: dict[str, int], scalars: Sequence[int]) -> list[int]:
    found: list[int] = []
    column = 2 + len(statement.reads)

    def element(node: Expression) -> ElementType:
        return scop.array(statement.reads[node.index].array).element if isinstance(node, Read) else node.element

    def emit(node: Expression) -> bool:
        """Whether it is a truth value."""
        nonlocal column
        match node:
            case Read(index):
                found.extend((element(node).size.bit_length(), 2 + index))
            case Constant(bits):
                found.extend((5, bits))
            case Scalar(register, kind, offset):
                number = int(register[3:])
                assert offset == 0
                found.extend((5, scalars[number] & (1 << 8 * kind.size) - 1))
            case Index(_, kind):
                found.extend((6 if kind.size == 8 else 7, column))
                column += 1
            case Apply("when", (condition, Read(index) as read)) if node is not statement.expression:
                emit(condition)
                found.extend((8 + element(read).size.bit_length(), 2 + index))
            case Apply("when", operands):
                for operand in operands:
                    emit(operand)
                found.extend((8, 0))
            case Apply(operator, operands, kind):
                truths = list(map(emit, operands))
                if operator == "select":
                    name = "select"
                elif operator in ("and", "or", "xor", "not") and truths[0]:
                    found.extend((numbers[f"{operator} truth"], 0))
                    return True
                elif operator in ("sext", "zext", "trunc"):
                    name = f"{operator}{kind.value} {element(operands[0]).value}"
                else:
                    name = f"{operator} {element(operands[0]).value}"
                found.extend((numbers[name], 0))
                return operator in ("eq", "slt", "sle", "ult", "ule", *PREDICATES)
        return False

    emit(statement.expression)
    return found
