"""One nest of every kind, by name, with its corner cases: tests and seeded faults run on these.

Each is called again on what it left, with other sizes, with one array over another, in another rounding mode, and
with hardly an iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.random_nests.program import DOUBLE, Build, Call, CType, Node, Program, SetLocal
from tests.support.random_nests.written import add, for_, if_, local, program, put, value

SIZES = (37, 37, 35, 37, 37, 2)


def _add_local(name: str, template: str, *references: str) -> SetLocal:
    return SetLocal(name, value(template, references), "+")


def _four(array: str) -> tuple[str, ...]:
    return f"{array}[i - 1,j]", f"{array}[i + 1,j]", f"{array}[i,j - 1]", f"{array}[i,j + 1]"


def _sweep(target: str, source: str) -> Node:
    return for_("i", "n - 1", for_("j", "n - 1", put(f"{target}[i,j]", "0.25 * ({} + {} + {} + {})", *_four(source)),
                                   lower="1"), lower="1")


def _product(target: str = "C[i,j]") -> Node:
    return for_("k", "n", add(target, "{} * {}", "A[i,k]", "B[k,j]"))


NESTS: dict[str, tuple[Node, Mapping[str, int]]] = {
    "product": (for_("i", "n", for_("j", "n", _product())), {"C": 2, "A": 2, "B": 2}),
    "summed product": (
        for_("i", "n", for_("j", "n", local("s", "0.0"),
                            for_("k", "n", _add_local("s", "{} * {}", "A[i,k]", "B[k,j]")), put("C[i,j]", "s"))),
        {"C": 2, "A": 2, "B": 2}),
    "initialised product": (for_("i", "n", for_("j", "n", put("C[i,j]", "0.0"), _product())), {"C": 2, "A": 2, "B": 2}),
    "reversed difference": (
        for_("i", "n", for_("j", "n", for_("k", "n", put("C[i,j]", "{} * {} - {}", "A[i,k]", "B[k,j]", "C[i,j]")))),
        {"C": 2, "A": 2, "B": 2}),
    "matrix and vector": (for_("i", "n", for_("j", "n", add("y[i]", "{} * {}", "A[i,j]", "x[j]"))),
                          {"y": 1, "A": 2, "x": 1}),
    "vector and matrix": (for_("i", "n", for_("j", "n", add("y[j]", "{} * {}", "A[i,j]", "x[i]"))),
                          {"y": 1, "A": 2, "x": 1}),
    "same operand again": (for_("i", "n", for_("j", "n", add("y[i]", "{}", "x[i]"))), {"y": 1, "x": 1}),
    "jacobi": (for_("t", "6", _sweep("B", "A"), _sweep("A", "B")), {"A": 2, "B": 2}),
    "seidel": (for_("t", "6", _sweep("A", "A")), {"A": 2}),
    "one row after the other": (
        for_("i", "n", for_("j", "n", put("A[i,j]", "{} + 0.5 * {}", "A[i - 1,j]", "B[i,j]")), lower="1"),
        {"A": 2, "B": 2}),
    "one column after the other": (
        for_("i", "n", for_("j", "n", put("A[i,j]", "{} + {}", "A[i,j - 1]", "B[i,j]"), lower="1")),
        {"A": 2, "B": 2}),
    "transposed": (for_("i", "n", for_("j", "n", put("B[j,i]", "{} * 2.0", "A[i,j]"))), {"B": 2, "A": 2}),
    "triangle": (for_("i", "n", for_("j", "i + 1", for_("k", "n", add("C[i,j]", "{} * {}", "A[i,k]", "A[j,k]")))),
                 {"C": 2, "A": 2}),
    "condition": (for_("i", "n", for_("j", "n", if_("i - j - 3", add("A[i,j]", "{} * 2.0", "B[j,i]")))),
                  {"A": 2, "B": 2}),
    "columns": (for_("j", "n", for_("i", "n", put("A[i,j]", "{} + {}", "A[i,j]", "B[i,2*j]"))), {"A": 2, "B": 2}),
    "backwards": (for_("i", "n", for_("j", "n", put("A[i,j]", "{} * 3.0", "B[i,j]"), step=-1), step=-1),
                  {"A": 2, "B": 2}),
    "shortest paths": (
        for_("k", "n", for_("i", "n", for_("j", "n", put("A[i,j]", "({0} < {1} + {2} ? {0} : {1} + {2})", "A[i,j]",
                                                         "A[i,k]", "A[k,j]")))),
        {"A": 2}),
    "some are multiplied": (
        for_("i", "n", for_("j", "n", put("A[i,j]", "({0} < {1} ? {0} * {1} + {1} : {0})", "A[i,j]", "B[i,j]"))),
        {"A": 2, "B": 2}),
    "some are divided": (
        for_("i", "n", for_("j", "n", put("A[i,j]", "({1} > 0.0 ? {0} / {1} : {0})", "A[i,j]", "B[j,i]"))),
        {"A": 2, "B": 2}),
    "some are summed": (
        for_("i", "n", for_("j", "n", put("A[i,j]", "({0} == {1} ? {0} * 0.3 + {1} : {0})", "A[i,j]", "B[i,j]"))),
        {"A": 2, "B": 2}),
    "two statements": (
        for_("i", "n", for_("j", "n", put("A[i,j]", "{} * 0.5", "B[i,j]"),
                            put("C[i,j]", "{} + {}", "A[i,j]", "B[j,i]"))),
        {"A": 2, "B": 2, "C": 2}),
}


def chosen(names: Sequence[str] = (), kind: CType = DOUBLE, build: Build | None = None, **more: Any
           ) -> dict[str, Program]:
    """The nests of ``names``, or all."""
    result = {}
    for number, (name, (body, ranks)) in enumerate(NESTS.items()):
        if not names or name in names:
            arrays = list(ranks)
            overlap = ((arrays[1], arrays[0], 5),) if len(arrays) > 1 else ()
            calls = (Call(), Call(fresh=False), Call(), Call(overlaps=overlap), Call(mxcsr=0x7F80), Call())
            result[name] = program(number + 1, body, ranks, {"n": SIZES}, kind, build, ("s",), calls, **more)
    return result


