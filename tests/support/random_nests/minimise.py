"""A program that fails made smaller, as long as it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from memopt.ir.linear import Linear
from tests.support.random_nests.program import (
    Access,
    Assign,
    Call,
    Expr,
    If,
    Loop,
    Node,
    Program,
    SetLocal,
    references,
    without_call,
)

Body = tuple[Node, ...]


def minimise(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """The first reduction that still fails is taken, again and again."""
    deadline = time.monotonic() + seconds
    tried = {program}
    going = True
    while going:
        going = False
        for smaller in reductions(program):
            if time.monotonic() > deadline:
                return program
            if smaller in tried:
                continue
            tried.add(smaller)
            if _holds(fails, smaller):
                program, going = smaller, True
                break
    return program


def _holds(fails: Callable[[Program], bool], program: Program) -> bool:
    try:
        return fails(program)
    except (RuntimeError, AssertionError, ValueError, KeyError):  # no longer a program that runs natively
        return False


def reductions(program: Program) -> Iterator[Program]:
    """Smaller programs, the most promising first."""
    for number in range(len(program.calls) - 1, -1, -1):
        if len(program.calls) > 1:
            yield without_call(program, number)
    yield from (replace(program, body=b) for b in _bodies(program.body))
    plain = tuple(Call(overlaps=c.overlaps) for c in program.calls)
    for changed in (replace(program, calls=plain), replace(program, calls=tuple(Call() for _ in program.calls)),
                    replace(program, specials=False), replace(program, small_caches=False),
                    replace(program, isa=""), replace(program, skip=0), replace(program, result=""),
                    replace(program, guards=("",) * len(program.guards)), _without_unused(program)):
        if changed != program:
            yield changed
    for flag in program.build.flags:
        flags = tuple(f for f in program.build.flags if f != flag)
        yield replace(program, build=replace(program.build, flags=flags))
    for number, (name, kind, values) in enumerate(program.sizes):
        for less in (tuple(v // 2 for v in values), tuple(max(0, v - 1) for v in values)):
            if less != values and name.startswith("n"):
                yield replace(program, sizes=(*program.sizes[:number], (name, kind, less), *program.sizes[number + 1:]))


def _without_unused(program: Program) -> Program:
    used = {a.array for a in _accesses(program.body)}
    kept = [(a, g) for a, g in zip(program.arrays, program.guards, strict=True) if a.name in used]
    text = repr(program.body) + repr([a for a, _ in kept]) + program.result
    return replace(
        program, arrays=tuple(a for a, _ in kept), guards=tuple(g for _, g in kept),
        calls=tuple(replace(c, overlaps=tuple(o for o in c.overlaps if {o[0], o[1]} <= used)) for c in program.calls),
        sizes=tuple(s for s in program.sizes if f"'{s[0]}'" in text),
        scalars=tuple(s for s in program.scalars if f"'{s[0]}'" in text),
        locals=tuple(x for x in program.locals if f"'{x[0]}'" in text or x[0] == program.result))


def _accesses(body: Body) -> Iterator[Access]:
    for node in body:
        match node:
            case Loop(body=inner):
                yield from _accesses(inner)
            case If(then=then, otherwise=otherwise, test=test):
                yield from _accesses((*then, *otherwise))
                yield from (a for value in test for a in references(value))
            case Assign(target, value):
                yield target
                yield from references(value)
            case SetLocal(value=value):
                yield from references(value)


def _bodies(body: Body) -> Iterator[Body]:
    for number, node in enumerate(body):
        before, after = body[:number], body[number + 1:]
        if len(body) > 1:
            yield before + after
        for changed in _nodes(node):
            yield before + changed + after


def _nodes(node: Node) -> Iterator[Body]:
    match node:
        case Loop():
            yield from ((replace(node, body=b),) for b in _bodies(node.body))
            if node.upper2 is not None:
                yield (replace(node, upper2=None),)
            if node.step != 1:
                yield (replace(node, step=1),)
            if node.lower.constant > 0 and node.lower.is_constant:
                yield (replace(node, lower=Linear.of(0)),)
            if node.upper.is_constant and node.upper.constant > 1:
                for upper in (node.upper.constant // 2, node.upper.constant - 1):
                    yield (replace(node, upper=Linear.of(upper)),)
        case If():
            yield node.then
            if node.otherwise:
                yield node.otherwise
                yield (replace(node, otherwise=()),)
        case Assign() | SetLocal():
            if node.accumulate:
                yield (replace(node, accumulate=""),)
            yield from ((replace(node, value=v),) for v in _values(node.value))


def _values(value: Expr) -> Iterator[Expr]:
    yield from (a for a in value.args if a.type == value.type)
    if value.op in ("scalar", "local", "index"):
        yield Expr("const", value.type, text="3")
    for number, argument in enumerate(value.args):
        for changed in _values(argument):
            yield replace(value, args=(*value.args[:number], changed, *value.args[number + 1:]))
