"""A copy that is moved is the one that a translation at its place makes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from memopt.cfg.functions import Surroundings, flow
from memopt.cfg.loop_nesting import find_nesting
from memopt.cfg.noreturn import NoReturn
from memopt.elf.image import ElfError, Image
from memopt.elf.landing import landing_pads
from memopt.elf.symbols import Function, Symbols
from memopt.ir.reasons import Reason, Rejected
from runtime.recording.translation.probe_routines import routines
from runtime.recording.translation.relocations import Of, Place, joined, moved_to, relocations
from runtime.recording.translation.trace_probes import Recording, Told
from runtime.recording.translation.translate import translate
from runtime.recording.translation.unit import Unit
from tests.conftest import Build

_TABLE = 1 << 20
_HERE = Place(0x7f0000010000, 0x7f0001000000, 0x7f0000000000)
_THERE = Place(0x560000123450, 0x55fff0000000, 0x560000100000)


def reading(image: Image, bias: int) -> Callable[[int, int], bytes]:
    def read(address: int, size: int) -> bytes:
        try:
            offset = image.offset_of(address - bias)
            return image.read(offset, min(size, image.size - offset))
        except ElfError:
            return b""

    return read


def translated(image: Image, functions: tuple[Function, ...], number: int, place: Place, told: Told) -> Unit:
    read = reading(image, place.bias)
    moved = tuple(Function(f.start + place.bias, f.end + place.bias, f.name) for f in functions)
    pads = functools.partial(landing_pads, image)
    around = Surroundings(moved, lambda at: tuple(pad.moved(place.bias) for pad in pads(at - place.bias)),
                          NoReturn(read, moved, ()))
    function = moved[number]
    graph = flow(read, function.start, (function.start, function.end), around)
    return translate(1, graph, find_nesting(graph), place.start, routines(place.routines, _TABLE, (5, 6)), _TABLE,
                     Recording(told), 7, function.name)


@pytest.mark.parametrize("told", [Told.NOTHING, Told.ACCESSES, Told.VALUES])
def test_a_moved_copy_is_the_one_that_is_made_there(build: Build, told: Told) -> None:
    kinds: set[Of] = set()
    with Image(str(build("interpreters.c"))) as image:
        functions = Symbols(image).everything
        for number in range(len(functions)):
            try:
                here = translated(image, functions, number, _HERE, told)
            except Rejected:
                continue
            there = translated(image, functions, number, _THERE, told)
            made = relocations(here.code, here.marks, _HERE)
            block, of_block = joined([(0, here.code, made)], len(here.code))
            assert bytes(moved_to(block, of_block, _THERE)) == there.code, functions[number]
            kinds |= {kind for kind, (offsets, _) in made.words.items() if len(offsets)}
    assert kinds == set(Of)


def test_copies_one_behind_the_other(build: Build) -> None:
    with Image(str(build("interpreters.c"))) as image:
        functions = Symbols(image).everything
        number = next(n for n, f in enumerate(functions) if f.name == "main")
        here = translated(image, functions, number, _HERE, Told.NOTHING)
        made, offset = relocations(here.code, here.marks, _HERE), len(here.code) + 48
        block, of_block = joined([(0, here.code, made), (offset, here.code, made)], offset + len(here.code))
        code = bytes(moved_to(block, of_block, _THERE))
        second = translated(image, functions, number, Place(_THERE.start + offset, _THERE.bias, _THERE.routines),
                            Told.NOTHING)
        assert code[offset:] == second.code


def test_what_is_out_of_reach_is_refused(build: Build) -> None:
    with Image(str(build("interpreters.c"))) as image:
        functions = Symbols(image).everything
        number = next(n for n, f in enumerate(functions) if f.name == "main")
        here = translated(image, functions, number, _HERE, Told.NOTHING)
        block, made = joined([(0, here.code, relocations(here.code, here.marks, _HERE))], len(here.code))
        with pytest.raises(Rejected) as refused:
            moved_to(block, made, Place(_THERE.start + (1 << 33), _THERE.bias, _THERE.routines + (1 << 33)))
        assert refused.value.reason is Reason.NO_ROOM
