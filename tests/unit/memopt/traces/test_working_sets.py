"""Working sets of random nests with calls, held against sets."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy
import pytest

from memopt.traces.core.format import BLOCK, LINE, PAGE, AccessShape, BlockShape
from memopt.traces.working_sets import Point, WorkingSets
from tests.support.drawn_traces import Drawn


@dataclass
class Entry:
    """Of a loop; ``noted``: sizes after so many iterations."""

    iterations: int = 1
    lines: set[int] = field(default_factory=set)
    pages: set[int] = field(default_factory=set)
    noted: dict[int, tuple[int, int]] = field(default_factory=dict)


def modelled(drawn: Drawn) -> dict[tuple[int, int], list[Entry]]:
    entries: dict[tuple[tuple[int, int], int], Entry] = defaultdict(Entry)
    for block, _, vector, made in drawn.events:
        for key, entry, iteration in vector:
            found = entries[key, entry]
            if iteration != found.iterations:
                found.iterations = iteration
                found.noted[iteration - 1] = len(found.lines), len(found.pages)
        for index, address in made:
            size = drawn.shapes[block].accesses[index].size
            for key, entry, _ in vector:
                entries[key, entry].lines |= {a // LINE for a in (address, address + size - 1)}
                entries[key, entry].pages |= {a // PAGE for a in (address, address + size - 1)}
    result: dict[tuple[int, int], list[Entry]] = defaultdict(list)
    for (key, _), found in entries.items():
        result[key].append(found)
    return result


def point(iterations: float, sizes: list[tuple[int, int]]) -> Point:
    lines, pages = ([s[n] for s in sizes] for n in (0, 1))
    return Point(iterations, len(sizes), sum(lines) / len(sizes), max(lines), sum(pages) / len(sizes), max(pages))


@pytest.mark.parametrize("seed", range(40))
def test_random_nests_have_the_working_sets_of_the_model(seed: int) -> None:
    drawn = Drawn(seed, span=1 << 15)
    seen = WorkingSets()
    seen.know(drawn.shapes, drawn.loops)
    words = numpy.array(drawn.words, numpy.uint64)
    for piece in numpy.split(words, sorted(drawn.random.randrange(len(words)) for _ in range(5))):
        seen.feed(piece)
    found = {(w.node, w.loop): (w.curve, w.end, w.trips) for w in seen.all()}
    expected = {}
    for key, entries in modelled(drawn).items():
        after = [k for k in (1, 2, 4, 8, 16) if any(k in e.noted for e in entries)]
        expected[key] = (
            tuple(point(k, [e.noted[k] for e in entries if k in e.noted]) for k in after),
            point(sum(e.iterations for e in entries) / len(entries), [(len(e.lines), len(e.pages)) for e in entries]),
            dict(Counter(1 << e.iterations.bit_length() - 1 for e in entries)))
    assert found == expected


def test_a_long_loop_over_an_array() -> None:
    seen = WorkingSets()
    seen.know([BlockShape(0, True, False, (AccessShape(8, True, False),))], [(None, 1)])
    count = 1 << 18
    trace = numpy.zeros((count, 3), numpy.uint64)
    trace[:, 0], trace[:, 1], trace[:, 2] = BLOCK << 48, 16, (1 << 30) + 8 * numpy.arange(count)
    seen.feed(trace.ravel())
    (found,) = seen.all()
    assert [p.iterations for p in found.curve] == [1 << n for n in range(18)]
    assert [p.most_lines for p in found.curve] == [max(1, (8 << n) // LINE) for n in range(18)]
    assert found.trips == {count: 1}
    assert found.end == Point(count, 1, 8 * count // LINE, 8 * count // LINE, 8 * count // PAGE, 8 * count // PAGE)


def test_a_repeated_access_touches_all_it_reaches() -> None:
    seen = WorkingSets()
    seen.know([BlockShape(0, True, False, (AccessShape(1, False, True, repeated=True),))], [(None, 1)])
    seen.feed(numpy.array([BLOCK << 48, 16, (1 << 30) + 60, 10_000_000], numpy.uint64))
    (found,) = seen.all()
    assert found.end.most_lines == (60 + 10_000_000 - 1) // LINE + 1
