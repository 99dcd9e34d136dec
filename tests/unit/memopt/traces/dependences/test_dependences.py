"""Dependences of random nests with calls, held against a plain model that keeps whole iteration vectors."""

from __future__ import annotations

import os
import random

import numpy
import pytest

from memopt.traces.core.active_loops import FAR
from memopt.traces.core.format import BLOCK, EXTRA, INSIDE, RESUMED, Access, AccessShape, BlockShape
from memopt.traces.core.tables import Array, zeros
from memopt.traces.dependences.dependences import Dependence, Dependences, Kind
from tests.support.dependence_model import Model, counts_in, found_in
from tests.support.drawn_runs import DrawnRuns
from tests.support.drawn_traces import Drawn
from tests.support.effort import some


@pytest.mark.parametrize("seed", some(range(40), 10))
def test_random_nests_have_the_dependences_of_the_model(seed: int) -> None:
    drawn, model = Drawn(seed), Model()
    for run, (block, node, vector, made) in enumerate(drawn.events):
        for index, address in made:
            model.access(drawn.shapes[block].accesses[index], Access(node, block, index), address, vector, run)
    seen = Dependences()
    seen.know(drawn.shapes, drawn.loops)
    words = numpy.array(drawn.words, numpy.uint64)
    cuts = sorted(drawn.random.randrange(len(words)) for _ in range(5))
    for piece in numpy.split(words, cuts):
        seen.feed(piece)
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted(drawn.shapes)
    assert seen.words == len(words)


@pytest.mark.parametrize("seed", range(30))
def test_words_that_are_cut_anywhere(seed: int) -> None:
    """Pieces of any size at any address, of few words; some are written whole now and then."""
    chance, model, seen = random.Random(seed), Model(), Dependences()
    kinds = (True, False), (False, True), (True, True)
    shapes = [AccessShape(chance.choice((1, 2, 3, 4, 6, 8, 8, 16, 32)), *chance.choice(kinds))
              for _ in range(chance.choice((6, 20, 60)))]
    block = BlockShape(0, True, True, tuple(shapes))
    seen.know([block], [(None, 1)])
    words, grain = [], chance.choice((1, 1, 2, 4))
    for iteration in range(150):
        words += [BLOCK << 48, 16]
        for index, shape in enumerate(shapes):
            if chance.random() < 0.3:
                address = 4096 + grain * chance.randrange(40 // grain)
                words.append(index << 48 | address)
                model.access(shape, Access(16, 0, index), address, (((16, 0), 0, iteration),), iteration)
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted([block])


@pytest.mark.parametrize("size", [8, 4, 1])
@pytest.mark.parametrize("sites", [2, 8, 9, 70])
def test_places_that_many_instructions_read(sites: int, size: int) -> None:
    """More of them than a chunk has room for, and than there are bits that tell them apart."""
    shapes = [BlockShape(0, True, False, (AccessShape(size, True, False),) * sites),
              BlockShape(0, False, False, (AccessShape(size, False, True),))]
    model, words, iteration = Model(), [], 0
    for run, block in enumerate((0, 0, 0, 1, 0, 1) * 8):
        iteration += block == 0
        accesses = [(0, 4096 + size * (run % 2))] if block == 1 else [
            (index, 4096 + size * ((iteration + index) % 3)) for index in range(sites)]
        words += [BLOCK << 48 | block, 16, *(index << 48 | address for index, address in accesses)]
        for index, address in accesses:
            model.access(shapes[block].accesses[index], Access(16, block, index), address, (((16, 0), 0, iteration),),
                         run)
    seen = Dependences()
    seen.know(shapes, [(None, 1)])
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted(shapes)


@pytest.mark.parametrize("sites", [60, 70, 400])
def test_places_that_many_instructions_have_read_are_cut(sites: int) -> None:
    """Each part has had all of the readers."""
    shapes = [BlockShape(0, True, False, (AccessShape(4, True, False),) * sites),
              BlockShape(0, False, False, (AccessShape(1, False, True), AccessShape(2, False, True)))]
    model, words = Model(), []
    for iteration in range(1, 12):
        writes = [(0, 4097), (1, 4098)] if iteration % 3 == 0 else []
        for block, accesses in ((0, [(index, 4096) for index in range(iteration % 2, sites)]), (1, writes)):
            words += [BLOCK << 48 | block, 16, *(index << 48 | address for index, address in accesses)]
            for index, address in accesses:
                model.access(shapes[block].accesses[index], Access(16, block, index), address,
                             (((16, 0), 0, iteration),), 2 * iteration + block)
    seen = Dependences()
    seen.know(shapes, [(None, 1)])
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted(shapes)


@pytest.mark.parametrize("seed", range(8))
def test_readers_before_a_write_are_not_taken_for_those_behind_it(seed: int) -> None:
    """They were where others are kept now, and share bits with these."""
    sites, chance = 140, random.Random(seed)
    shapes = [BlockShape(0, True, False, (AccessShape(8, True, False),) * sites),
              BlockShape(0, False, False, (AccessShape(8, False, True),))]
    model, words = Model(), []
    for iteration in range(1, 400):
        read = chance.sample(range(sites), chance.choice((3, 8, 14)))
        words += [BLOCK << 48, 16, *(index << 48 | 4096 for index in read), BLOCK << 48 | 1, 16, 4096]
        for block, index in (*((0, index) for index in read), (1, 0)):
            model.access(shapes[block].accesses[index], Access(16, block, index), 4096, (((16, 0), 0, iteration),),
                         2 * iteration + block)
    seen = Dependences()
    seen.know(shapes, [(None, 1)])
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == model.found
    assert counts_in(seen) == model.counted(shapes)


@pytest.mark.parametrize("most", [5, 60, FAR + 50])
def test_distances_that_vary(most: int) -> None:
    chance = random.Random(most)
    shapes = [BlockShape(0, True, False, (AccessShape(8, True, False), AccessShape(8, False, True)))]
    model, words = Model(), []
    for iteration in range(1, max(500, 2 * most)):
        back = 4096 + 8 * max(0, iteration - chance.randrange(max(1, most - iteration // 9), most + 1))
        words += [BLOCK << 48, 16, back, 1 << 48 | 4096 + 8 * iteration]
        for index, address in enumerate((back, 4096 + 8 * iteration)):
            model.access(shapes[0].accesses[index], Access(16, 0, index), address, (((16, 0), 0, iteration),),
                         iteration)
    seen = Dependences()
    seen.know(shapes, [(None, 1)])
    seen.feed(numpy.array(words, numpy.uint64))
    assert found_in(seen) == {key: (min(FAR, low), min(FAR, high)) for key, (low, high) in model.found.items()}
    assert counts_in(seen) == model.counted(shapes)


@pytest.mark.parametrize(("seed", "grain"), [
    *((seed, 8) for seed in range(120)), *((seed, 4) for seed in range(120, 200)), (200, 2), (201, 1)])
def test_runs_of_alike_iterations_have_the_dependences_of_their_words(seed: int, grain: int) -> None:
    drawn = DrawnRuns(seed, grain)
    words, chance = numpy.array(drawn.words, numpy.uint64), random.Random(seed)
    pieces = numpy.split(words, sorted(chance.randrange(len(words)) for _ in range(seed % 4)))
    together, alone = Dependences(), Dependences(runs=False)
    for seen in (together, alone):
        seen.know(drawn.shapes, drawn.loops)
        for piece in pieces:
            seen.feed(piece)
    assert alone.together == 0
    assert {repr(d) for d in together.all()} == {repr(d) for d in alone.all()}


def both_ways(shapes: list[BlockShape], loops: int, words: list[int]) -> list[Dependence]:
    """What is found in a trace, which has runs, and is not found otherwise without looking at them together."""
    found = []
    for runs in (True, False):
        seen = Dependences(runs=runs)
        seen.know(shapes, [(None, 1)] * loops)
        seen.feed(numpy.array(words, numpy.uint64))
        assert bool(seen.together) == runs
        found.append(sorted(seen.all(), key=repr))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("sites", [3, 30, 41, 90])
def test_places_that_many_instructions_of_alike_iterations_read(sites: int) -> None:
    """More of them than a strip has room for."""
    shapes = [BlockShape(0, True, False, (AccessShape(8, True, False),) * sites),
              BlockShape(0, False, False, (AccessShape(8, False, True), AccessShape(16, True, True)))]
    words = [word for _ in range(3) for i in range(200) for word in (
        BLOCK << 48, 16, *(n << 48 | 4096 + 8 * i + 8 * (7 * n % 11) for n in range(sites)),
        BLOCK << 48 | 1, 16, (1 << 20) + 8 * i, 1 << 48 | 4096 + 8 * i)]
    assert both_ways(shapes, 1, words)


@pytest.mark.parametrize(("grain", "size"), [(8, 8), (8, 4), (4, 4), (4, 2)])
def test_many_places_that_leave_their_strips_in_one_run(grain: int, size: int) -> None:
    """Three strips with 38 readers, gone through across them, then written."""
    sites, places = 38, 45_000
    shapes = [BlockShape(0, True, False, (AccessShape(grain, True, False),) * (3 * sites)),
              BlockShape(1, True, False, (AccessShape(size, True, False),)),
              BlockShape(2, True, False, (AccessShape(grain, False, True),))]
    words = []
    for place in range(0, places, 3):
        words += [BLOCK << 48, 16, *(n << 48 | 0x10000 + grain * (place + n % 3) for n in range(3 * sites))]
    for block in (1, 2):
        for place in range(places):
            words += [BLOCK << 48 | block, 16, 0x10000 + grain * place]
    found = both_ways(shapes, 3, words)
    assert sum(d.count for d in found) == (sites + 1) * places  # as many as if no word had been cut


@pytest.mark.parametrize("sites", some([750, 850, 900], 1))
def test_a_run_that_there_must_be_more_room_for_goes_on_where_it_was(sites: int) -> None:
    """The run of each context finds dependences: the table is too small in an iteration of one of them, the first one
    but where there are 900 sites."""
    shapes = [BlockShape(0, True, False, (AccessShape(8, True, True),) * sites)]
    words = [word for node in range(16, 16 * 25, 16) for _ in range(8) for word in (
        BLOCK << 48, node, *(n << 48 | 4096 + 8 * n for n in range(sites)))]
    found = both_ways(shapes, 1, words)
    assert len(found) > 1 << 16


def test_distances_from_a_run_to_what_its_loop_did_before() -> None:
    """Times are linear, iterations are not: the first and the last are as far, and all others farther."""
    shapes = [BlockShape(0, True, False, ()), BlockShape(0, False, False, (AccessShape(8, False, True),)),
              BlockShape(0, False, False, (AccessShape(8, True, False),)),
              BlockShape(0, False, False, (AccessShape(8, True, False),))]
    chance, words = random.Random(1), []

    def tell(block: int, *accesses: int) -> None:
        words.extend((BLOCK << 48 | block, 16, *accesses))

    def other(count: int) -> None:
        for _ in range(count):
            tell(2, (1 << 30) + 8 * chance.randrange(99))

    for place in range(10):  # two iterations for a place
        tell(0)
        tell(1, 4096 + 8 * place)
        tell(0)
        other(1)
    for place in range(10, 30, 2):  # one for two
        tell(0)
        tell(1, 4096 + 8 * place)
        other(3)
        tell(1, 4104 + 8 * place)
        other(2)
    for place in range(29):
        tell(0)
        tell(3, 4096 + 8 * place)
    (raw,) = (found for found in both_ways(shapes, 1, words) if found.kind is Kind.RAW)
    assert (raw.carrier, raw.count) == ((16, 0), 29)
    assert raw.least < raw.most


def test_what_comes_behind_a_run_knows_when_its_iterations_began() -> None:
    shapes = [BlockShape(0, True, False, (AccessShape(8, False, True),)),
              BlockShape(0, False, False, (AccessShape(8, True, False),)), BlockShape(0, False, False, ())]
    words = [word for i in range(30) for word in (BLOCK << 48, 16, 4096 + 8 * i, BLOCK << 48 | 2, 16)]
    words += [BLOCK << 48, 16, 4096 + 8 * 30, *(
        word for back in (2, 4) for word in (BLOCK << 48 | 1, 16, 4096 + 8 * (30 - back)))]
    (found,) = both_ways(shapes, 1, words)
    assert (found.kind, found.least, found.most, found.count) == (Kind.RAW, 2, 4, 2)


def test_strips_that_were_read_last_at_other_times_stay_apart() -> None:
    shapes = [BlockShape(None, False, True, ()), *(
        BlockShape(loop, True, False, (AccessShape(8, loop < 2, loop == 2),)) for loop in range(3))]
    words = [BLOCK << 48, 16]
    for loop, trips in ((0, 40), (0, 20), (1, 40), (2, 40)):
        words += [word for i in range(trips) for word in (BLOCK << 48 | 1 + loop, 16, 4096 + 8 * i)]
        words += [BLOCK << 48, 16]
    counts = {found.source.block: found.count for found in both_ways(shapes, 3, words)}
    assert counts == {1: 40 + 20, 2: 40}


def test_a_loop_that_is_left_and_entered_again_has_no_run() -> None:
    """Its function is called again and again by what is in no loop that is known."""
    shapes = [BlockShape(None, False, False, ()), BlockShape(0, True, False, (AccessShape(8, True, True),))]
    seen = Dependences()
    seen.know(shapes, [(None, 1)])
    seen.feed(numpy.array([(BLOCK << 48, 16, BLOCK << 48 | 1, 32, 4096)] * 50, numpy.uint64).ravel())
    assert seen.together == 0
    assert {found.carrier for found in seen.all()} == {None}


def test_a_word_of_another_kind_ends_a_run() -> None:
    shapes = [BlockShape(0, True, False, (AccessShape(8, False, True),) * 2)]
    words = [word for i in range(40) for word in (BLOCK << 48, 16, EXTRA << 48 | 4096 + i, 4096 + 8 * i)]
    words[-2] = 1 << 48 | 4096
    (found,) = both_ways(shapes, 1, words)
    assert (found.kind, found.least) == (Kind.WAW, 39)


def test_much_of_such_traces_is_looked_at_together() -> None:
    words = together = 0
    for seed in range(20):
        drawn, seen = DrawnRuns(seed, 8 - seed % 2 * 4), Dependences()
        seen.know(drawn.shapes, drawn.loops)
        seen.feed(numpy.array(drawn.words, numpy.uint64))
        words, together = words + len(drawn.words), together + seen.together
    assert together > words / 4


def chain(distance: int, count: int) -> Dependences:
    """A loop that reads what it wrote ``distance`` iterations before."""
    seen = Dependences()
    seen.know([BlockShape(0, True, False, (AccessShape(8, True, False), AccessShape(8, False, True)))], [(None, 1)])
    trace = [(BLOCK << 48, 16, (1 << 20) + 8 * i, 1 << 48 | (1 << 20) + 8 * (i + distance)) for i in range(count)]
    seen.feed(numpy.array(trace, numpy.uint64).ravel())
    return seen


@pytest.mark.parametrize("distance", [1, 2, 3, 1000, FAR - 1])
def test_distances_are_exact(distance: int) -> None:
    (found,) = chain(distance, 3 * distance + 5).all()
    assert (found.kind, found.carrier, found.least, found.most) == (Kind.RAW, (16, 0), distance, distance)
    assert found.count == 2 * distance + 5


def test_what_is_too_far_is_said_to_be_far() -> None:
    (found,) = chain(2 * FAR, 3 * FAR).all()
    assert (found.least, found.most) == (FAR, FAR)


def test_a_repeated_access_is_one_for_each_place() -> None:
    seen = Dependences()
    repeated = AccessShape(1, False, True, repeated=True)
    seen.know([BlockShape(None, False, True, (repeated, AccessShape(8, True, False)))], [])
    start = (1 << 30) + 3
    seen.feed(numpy.array([BLOCK << 48, 16, start, 100_000, 1 << 48 | start + 100_000], numpy.uint64))
    assert list(seen.all()) == []
    seen.feed(numpy.array([1 << 48 | start + 99_999], numpy.uint64))
    (found,) = seen.all()
    assert (found.kind, found.count) == (Kind.RAW, 1)


def test_a_block_that_was_interrupted_goes_on_in_its_iteration() -> None:
    seen = Dependences()
    seen.know([BlockShape(0, True, False, (AccessShape(8, False, True), AccessShape(8, True, False))),
               BlockShape(None, False, True, ())], [(None, 1)])
    seen.feed(numpy.array([BLOCK << 48, 16, 4096, BLOCK << 48 | 1, 32, BLOCK << 48, 16 | RESUMED, 1 << 48 | 4096],
                          numpy.uint64))
    (found,) = seen.all()
    assert found.carrier is None


def test_what_is_entered_behind_its_first_block_begins_no_iteration() -> None:
    seen = Dependences()
    seen.know([BlockShape(0, True, True, (AccessShape(8, True, False), AccessShape(8, False, True)))], [(None, 1)])
    words = [BLOCK << 48, 16 | INSIDE, 1 << 48 | 4096]
    words += [word for i in range(100) for word in (BLOCK << 48, 16, 4096 + 8 * i, 1 << 48 | 4104 + 8 * i)]
    words += [BLOCK << 48, 16 | INSIDE, 1 << 48 | 4096 + 8 * 100, BLOCK << 48, 16, 4096 + 8 * 100]
    seen.feed(numpy.array(words, numpy.uint64))
    assert {d.kind: (d.carrier, d.least, d.most, d.count) for d in seen.all()} == {
        Kind.RAW: ((16, 0), 1, 1, 101), Kind.WAW: (None, 0, 0, 1)}


@pytest.mark.parametrize("known", [True, False])
def test_what_has_not_called_a_node_is_over_when_it_runs(known: bool) -> None:
    """The loop of 48, called through 32; then 80, called through 64: neither 32 nor 64 are told."""
    seen = Dependences()
    seen.know([BlockShape(0, True, False, ()), BlockShape(1, True, False, (AccessShape(8, False, True),)),
               BlockShape(None, False, False, (AccessShape(8, True, False),))], [(None, 1), (None, 1)])
    if known:
        seen.know_nodes(numpy.array([(32, 16), (48, 32), (64, 16), (80, 64)]))
    words = [BLOCK << 48, 16, *(BLOCK << 48 | 1, 48, 4096, BLOCK << 48 | 1, 48, 8192), BLOCK << 48 | 2, 80, 4096]
    seen.feed(numpy.array(words, numpy.uint64))
    (found,) = seen.all()
    assert (found.kind, found.carrier) == (Kind.RAW, None if known else (48, 1))


@pytest.mark.parametrize("caller", [48, 16])
def test_a_loop_whose_node_is_over_in_each_iteration_has_no_run(caller: int) -> None:
    """What 48 has called goes on in what has called 48, as recursive calls do, which calls 80."""
    seen = Dependences()
    seen.know([BlockShape(0, True, False, (AccessShape(8, True, True),)),
               BlockShape(None, False, False, (AccessShape(8, True, False),))], [(None, 1)])
    seen.know_nodes(numpy.array([(48, 16), (80, caller)]))
    seen.feed(numpy.array([(BLOCK << 48, 48, 4096, BLOCK << 48 | 1, 80, 8192)] * 50, numpy.uint64).ravel())
    assert bool(seen.together) == (caller == 48)
    assert {found.carrier for found in seen.all()} == {(48, 0) if caller == 48 else None}


def few(rows: int, columns: int) -> Array:
    if 8 * rows * columns > 700 << 20:
        raise MemoryError
    return zeros(rows, columns)


@pytest.mark.parametrize(("place", "instead"), [("memopt.traces.dependences.dependences.zeros", few),
                                                ("resource.getrlimit", lambda _: (8 << 30, -1))])
def test_where_addresses_are_few_tables_grow(place: str, instead: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found before, and what is kept, stays as it was."""
    shapes = [BlockShape(0, True, False, (AccessShape(1, True, True), *(AccessShape(4, True, False),) * 9))]
    words = [word for i in range(200_000) for word in (
        BLOCK << 48, 16, (1 << 30) + 88 * (i * i % 100_003),
        *(n << 48 | (1 << 30) + 88 * ((i + n) * (i + n) % 100_003) for n in range(1, 10)))]
    found, rooms = [], []
    for _ in range(2):
        seen = Dependences()
        seen.know(shapes, [(None, 1)])
        rooms.append(len(seen._cells))
        for piece in numpy.array_split(numpy.array(words, numpy.uint64), 7):
            seen.feed(piece)
        assert seen.complete
        found.append(sorted(map(repr, seen.all())))
        rooms.append(len(seen._cells))
        monkeypatch.setattr(place, instead)
    assert found[0] == found[1]
    assert rooms[0] == rooms[1] > rooms[3] > rooms[2]


def test_a_process_with_many_tables_still_forks() -> None:
    """Tables of many threads have more addresses than there is memory; what starts programs forks."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tables = [zeros(memory // 16, 1) for _ in range(4)]
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert not any(table[-1, 0] for table in tables)


def test_too_much_memory_ends_it() -> None:
    seen = Dependences(limit=100 << 20)
    seen.know([BlockShape(None, False, True, (AccessShape(8, True, True),))], [])
    trace = [(BLOCK << 48, 16, 4096 * i) for i in range(1 << 16)]
    seen.feed(numpy.array(trace, numpy.uint64).ravel())
    assert not seen.complete
    assert list(seen.all()) == []
