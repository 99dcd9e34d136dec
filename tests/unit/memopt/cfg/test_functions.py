"""The structure of compiled functions: nothing that can run is left out, and what calls lead to has its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from memopt.cfg.dominators import dominates, immediate_dominators
from memopt.cfg.functions import Surroundings, flow, intervals
from memopt.cfg.noreturn import NoReturn
from memopt.elf.symbols import Function
from tests.support.graphs import drawn
from tests.support.structures import built


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-fno-plt"), ("-O2", "-fcf-protection=full")], ids=" ".join)
def test_calls_of_other_files_have_names(tmp_path: Path, flags: tuple[str, ...]) -> None:
    found = {f.function.name: set(f.symbols.values()) for f in built(tmp_path, "gcc", *flags)}
    assert found["main"] == {"printf"}
    assert found["step"] & {"putc", "putchar"}


def test_a_part_without_a_name_is_found_by_any_of_its_blocks() -> None:
    """The function jumps to two blocks of a range that lies apart; one returns, the other one jumps back."""
    def jump(opcode: bytes, end: int, target: int) -> bytes:
        return opcode + (target - end).to_bytes(4, "little", signed=True)

    code = b"\x48\x85\xff" + jump(b"\x0f\x84", 0x1009, 0x2000) + jump(b"\x0f\x88", 0x100F, 0x2001) + b"\x90\xc3"
    code = code.ljust(0x1000, b"\xcc") + b"\xc3" + jump(b"\xe9", 0x2006, 0x100F)
    functions = (Function(0x1000, 0x1011, "f"), Function(0x2000, 0x2006, ""))

    def read(address: int, size: int) -> bytes:
        return code[address - 0x1000:address - 0x1000 + size]

    around = Surroundings(functions, lambda _: (), NoReturn(read, functions, ()))
    assert {0x2000, 0x2001} <= set(flow(read, 0x1000, (0x1000, 0x1011), around).blocks)


@pytest.mark.parametrize("seed", range(60))
def test_intervals_are_those_of_dominance(seed: int) -> None:
    graph = drawn(seed)
    dominators, found = immediate_dominators(graph), intervals(graph)
    for one in graph.blocks:
        for other in graph.blocks:
            inside = found[one][0] <= found[other][0] <= found[one][1]
            assert inside == dominates(dominators, one, other)
