"""Programs by number: a nest, its forms, its build and its surroundings follow from the seed.

A nest is one of tests.support.random_nests (small, called often), one with a loop of rounds around it (so that it can
be stopped in the middle), or a nest of every kind with larger sizes (so that it passes over pages, and takes
milliseconds).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memopt.ir.linear import Linear
from tests.support.random_nests.chosen import NESTS
from tests.support.random_nests.draw import draw as draw_nest
from tests.support.random_nests.draw import draw_build
from tests.support.random_nests.program import DOUBLE, FLOAT, INT32, Build, Call, If, Loop, Node, Program, layout, work
from tests.support.random_nests.written import add, for_, program, put, value
from tests.support.surroundings.kinds import EARLY_REFUSED, KINDS, Kind

CALLS = 4  # as in surroundings.h
ROUNDS = "rounds"
MOST_BYTES = 4 << 20  # of all arrays: six lanes are filled and compared again and again
_ATTEMPTS = 200
_MOST_ACTS = 3


@dataclass(frozen=True, slots=True)
class Forms:
    """What the nest reads and stores besides its arrays. ``counts``: 1: its progress at the beginning of an outer
    iteration, 2: at its end. ``released``: by a release store. ``mark``: a constant in its code, 0 for none.
    ``plugged``: 1: in a plug-in, 2: in memory without a file. ``extreme``: an array whose upper half is small."""

    counts: int = 0
    released: bool = False
    stops: bool = False
    mark: int = 0
    plugged: int = 0
    extreme: int = -1


@dataclass(frozen=True, slots=True)
class Surrounded:
    """``acts``: as arguments of the program. ``way``: how memopt comes and goes: "exec", "attach",
    "undone", "killed"; "wrong" for versions with a fault. ``kept``: a version stays that does not gain."""

    seed: int
    nest: Program
    forms: Forms
    acts: tuple[str, ...]
    static: bool = False
    way: str = "exec"
    kept: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(a.split(":")[0] for a in self.acts)


def draw(seed: int, only: Sequence[str] = ()) -> Surrounded:
    """The program of ``seed``; its first kind is one of ``only``, where that is not empty."""
    choose = random.Random(f"surroundings {seed}")
    kinds = drawn_kinds(seed, only, choose)
    forms = _forms(choose, kinds)
    nest, extreme = _nest(seed, choose, forms, any(k.parts for k in kinds))
    forms = replace(forms, extreme=extreme)
    acts = tuple("{}:{}:{}".format(k.name, *k.numbers(choose)) for k in kinds)
    static = not forms.plugged and choose.random() < 0.12
    way = "exec" if any(k.early or k.last for k in kinds) else choose.choices(
        ("exec", "attach", "undone", "killed"), (12, 2, 2, 1))[0]
    return Surrounded(seed, nest, forms, acts, static, way, choose.random() < 0.85)


def drawn_kinds(seed: int, only: Sequence[str] = (), choose: random.Random | None = None) -> tuple[Kind, ...]:
    """The kinds of ``draw(seed, only)``, in the order in which they act."""
    choose = choose or random.Random(f"surroundings {seed}")
    some = [k for k in KINDS if not only or k.name in only]
    kinds = [choose.choice(some)]
    for _ in range(choose.choices(range(_MOST_ACTS), (5, 3, 2))[0]):
        other = choose.choice(KINDS)
        alone = kinds[-1].last or EARLY_REFUSED & {other.name, kinds[0].name} or (
            other.early and any(k.early for k in kinds))
        fits = not alone and other.name not in {k.name for k in kinds}
        if fits and not ("mark" in other.needs and _needs(kinds, "plug-in")) and not (
                "plug-in" in other.needs and _needs(kinds, "mark")):
            kinds.append(other)
    return tuple(sorted(kinds, key=lambda k: k.last))


def _needs(kinds: Sequence[Kind], form: str) -> bool:
    return any(form in k.needs for k in kinds)


def _forms(choose: random.Random, kinds: Sequence[Kind]) -> Forms:
    stops = _needs(kinds, "stop")
    counts = choose.choice((1, 2)) if _needs(kinds, "progress") else choose.choice((0, 1, 2, 2)) if stops else 0
    return Forms(counts, choose.random() < 0.5, stops, choose.choice((3, 100)) if _needs(kinds, "mark") else 0,
                 choose.choice((1, 1, 2)) if _needs(kinds, "plug-in") else 0)


def _nest(seed: int, choose: random.Random, forms: Forms, parts: bool) -> tuple[Program, int]:
    """The nest, and which array's upper half is to hold small numbers (or -1), so that conditions pass over it."""
    for attempt in range(_ATTEMPTS):
        extreme = -1
        way = choose.choices(("small", "rounds", "large"), (0 if parts else 2, 30 if forms.stops else 2, 4))[0]
        build = _build(choose)
        if way == "large":
            name = choose.choice(tuple(_PASSING)) if parts and choose.random() < 0.8 else choose.choice(
                [*NESTS, *_MORE, *_MORE])
            found: Program | None = _large(name, choose, build)
            extreme = _PASSING.get(name, -1)
        else:
            found = _small(draw_nest(900_000_000 + seed * _ATTEMPTS + attempt), build)
        if found is not None and way == "rounds":
            found = _with_rounds(found, choose)
        if found is not None and sum(layout(found).sizes) <= MOST_BYTES:
            return replace(found, seed=seed), extreme
    raise AssertionError(f"seed {seed} makes no program")


def _build(choose: random.Random) -> Build:
    while True:
        build = draw_build(choose)
        if build.level != "-O0":
            level = "-Os" if build.level == "-O1" and choose.random() < 0.5 else build.level
            return replace(build, level=level, flags=(*build.flags, "-ffp-contract=off", "-fwrapv"))


def _small(nest: Program, build: Build) -> Program | None:
    """A random nest with one outermost loop, and with arrays that the caller hands over."""
    if len(nest.body) != 1 or not isinstance(nest.body[0], Loop) or any(a.form == "global" for a in nest.arrays):
        return None
    if work(nest, 0) < 3000:
        return None
    calls = tuple(replace(c, mxcsr=0x1F80, fresh=True) for c in nest.calls[:CALLS])
    sizes = tuple((n, t, v[:CALLS]) for n, t, v in nest.sizes)
    return replace(nest, build=build, calls=calls, sizes=sizes, result="")


def _with_rounds(nest: Program, choose: random.Random) -> Program:
    """``for (long round = 0; round < rounds; round++)`` around the nest."""
    rounds = min(300, max(8, 2_000_000 // work(nest, 0)))
    loop = Loop("round", Linear.of(0), Linear.symbol(ROUNDS), 1, "long", nest.body)
    return replace(nest, body=(loop,), sizes=(*nest.sizes, (ROUNDS, "long", (rounds, rounds, rounds // 2, rounds))))


def _conditional(target: str, template: str, *references: str) -> Node:
    """``if (value < target) target = value;``"""
    node = put(target, template, *references)
    return If(Linear(), "<", (node,), (), (node.value, value("{}", (target,))))


_MORE: dict[str, tuple[Node, dict[str, int]]] = {
    "relaxation": (for_("k", "n", for_("i", "n", for_("j", "n",
        _conditional("C[i,j]", "{} + {}", "A[i,k]", "B[k,j]")))), {"C": 2, "A": 2, "B": 2}),
    "some paths": (for_("k", "n", for_("i", "n", for_("j", "n",
        _conditional("A[i,j]", "{} + {}", "A[i,k]", "A[k,j]")))), {"A": 2}),
    "passes": (for_("k", "n", for_("i", "n", for_("j", "n", If(
        Linear(), "<", (add("C[i,j]", "{} * {}", "A[i,k]", "B[k,j]"),), (),
        (value("0.0", ()), value("{}", ("D[i,j]",))))))), {"C": 2, "A": 2, "B": 2, "D": 2}),
    "wide triangle": (for_("i", "n", for_("j", "i + 1", add("A[i,j]", "{} * 0.5 + {}", "B[i,j]", "B[j,i]"))),
                      {"A": 2, "B": 2}),
}


_PASSING = {"relaxation": 0, "passes": 3, "wide triangle": -1, "triangle": -1, "condition": -1}


def _large(name: str, choose: random.Random, build: Build) -> Program:
    body, ranks = (NESTS | _MORE)[name]
    deep = _depth(body)
    n = choose.randint(60, 120) if deep == 3 else choose.randint(150, 420)
    if name in ("one row after the other", "some are multiplied", "wide triangle"):
        n = choose.randint(400, 520)
    kind = choose.choice((DOUBLE, DOUBLE, FLOAT, INT32))
    if kind is INT32 and name not in ("product", "initialised product", "matrix and vector", "triangle", "relaxation"):
        kind = DOUBLE
    arrays = list(ranks)
    overlap = ((arrays[1], arrays[0], 5),) if len(arrays) > 1 and choose.random() < 0.3 else ()
    calls = (Call(), Call(), Call(), Call(overlaps=overlap))
    return program(1, body, ranks, {"n": (n, n, n - 2, n)}, kind, build, ("s",), calls,
                   guards=choose.choice(("end", "start", "")))


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node.body)) if isinstance(node, Loop) else 0
