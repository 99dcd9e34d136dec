"""Jump tables of compiled switches and of labels as values: all ways through them are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from memopt.elf.image import Image
from memopt.ir.graph import Kind
from memopt.x86.decoder import decode
from tests.support.structures import built

LABELS = """
int run(const unsigned char *at, int state)
{
    static const void *const ways[] = {&&add, &&scale, &&flip, &&take, &&end};
    goto *ways[*at++];
add: state += 1; goto *ways[*at++];
scale: state *= 3; goto *ways[*at++];
flip: state ^= 0x55; goto *ways[*at++];
take: state -= 7; goto *ways[*at++];
end: return state;
}
int main(int count, char **words) { return run((unsigned char *)words[0], count); }
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-O1",), ("-O2",), ("-O0", "-no-pie"), ("-O2", "-no-pie")], ids=" ".join)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_labels_as_values_are_ways_through_one_function(tmp_path: Path, compiler: str, flags: tuple[str, ...]) -> None:
    run = next(f for f in built(tmp_path, compiler, *flags, source=LABELS) if f.function.name == "run")
    jumps = [b for b in run.graph.blocks.values() if b.kind is Kind.INDIRECT]
    assert jumps
    assert all(len(b.successors) == 5 for b in jumps)
    assert any(b.kind is Kind.RETURN for b in run.graph.blocks.values())
    assert run.nesting.loops


@pytest.mark.parametrize("flags", [("-O0",), ("-O1",), ("-O2",), ("-O2", "-fno-pie", "-no-pie"),
                                   ("-O2", "-fcf-protection=full")], ids=" ".join)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_all_ways_through_a_switch_are_found(tmp_path: Path, compiler: str, flags: tuple[str, ...]) -> None:
    step = next(f for f in built(tmp_path, compiler, *flags) if f.function.name == "step")
    jumps = [b for b in step.graph.blocks.values() if b.kind is Kind.INDIRECT]
    assert jumps
    assert all(b.successors for b in jumps)
    covered = {a for b in step.graph.blocks.values() for a in range(b.start, b.end)}
    missing = set(range(step.function.start, step.function.end)) - covered
    with Image(str(tmp_path / "a")) as image:
        code = image.read(image.offset_of(step.function.start), step.function.end - step.function.start)
    assert all("nop" in i.mnemonic or "int3" in i.mnemonic or i.mnemonic == "xchg"
               for i in decode(code, step.function.start) if i.address in missing)
    (loop,) = (loop for loop in step.nesting.loops if loop.depth == 1)
    assert {b.start for b in jumps} <= loop.blocks
