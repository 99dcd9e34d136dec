"""Which outer iteration stores to an element last.

Example: in ``for i { for j <= i { A[i][j] = ...; } }`` element A[3][1] is stored to in iteration 4, counted from 1;
A[1][3] in none: nobody touches it. So a program can tell from a counter of iterations which
elements are what they will be.

Sound because the iteration domains are enumerated; a store under a condition on data counts as done.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from memopt.ir.linear import Linear
from tests.support.random_nests.program import (
    Access,
    Assign,
    If,
    Layout,
    Loop,
    Node,
    Points,
    Program,
    accesses,
    condition,
    evaluate,
    expand,
    layout,
    strides,
)

NOBODY = -1


def outer_values(nest: Program, call: int) -> numpy.ndarray:
    """The values of the outermost loop's counter, in order."""
    loop, = nest.body
    assert isinstance(loop, Loop)
    start = {name: numpy.array([value]) for name, value in nest.arguments(call).items()}
    return expand(loop, start)[loop.var]


def last_stores(nest: Program, call: int) -> tuple[numpy.ndarray, ...]:
    """For each region of memory and each element of it: the outer iteration, from 1, that stores to it last; 0: it is
    only
    read; ``NOBODY``: it is not accessed."""
    made = layout(nest)
    found = [numpy.full(size // a.element_size, NOBODY, dtype=numpy.int16)
             for size, a in zip(made.sizes, nest.arrays, strict=True)]
    loop, = nest.body
    assert isinstance(loop, Loop)
    first = int(outer_values(nest, call)[0])
    for access, points in accesses(nest, call):
        region, places = _places(nest, call, made, access, points)
        found[region][places] = numpy.maximum(found[region][places], 0)
    for access, points in _stores(nest.body, {n: numpy.array([v]) for n, v in nest.arguments(call).items()}):
        region, places = _places(nest, call, made, access, points)
        numpy.maximum.at(found[region], places, ((points[loop.var] - first) // loop.step + 1).astype(numpy.int16))
    return tuple(found)


def _places(nest: Program, call: int, made: Layout, access: Access, points: Points) -> tuple[int, numpy.ndarray]:
    """The region, and the number of the element in it at each point."""
    array = nest.array(access.array)
    linear = Linear()
    for subscript, stride in zip(access.subscripts, strides(array, nest.arguments(call)), strict=True):
        linear = linear + subscript * stride
    region, offset = made.pointers[call][access.array]
    return region, evaluate(linear, points) + offset // array.element_size


def _stores(body: tuple[Node, ...], points: Points) -> Iterator[tuple[Access, Points]]:
    for node in body:
        match node:
            case Loop():
                yield from _stores(node.body, expand(node, points))
            case If(then=then, otherwise=otherwise, test=test) if test:  # either may be
                yield from _stores((*then, *otherwise), points)
            case If(linear, relation, then, otherwise):
                holds = condition(linear, relation, points)
                for side, mask in ((then, holds), (otherwise, ~holds)):
                    yield from _stores(side, {n: v[mask] for n, v in points.items()})
            case Assign(target):
                yield target, points
