"""The structure of compiled functions: nothing that can run is left out, and what calls lead to has its name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from memopt.cfg.dominators import dominates, immediate_dominators
from memopt.cfg.functions import FunctionStructure, intervals, structures
from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from memopt.ir.graph import Kind
from memopt.x86.decoder import decode
from tests.support.tools import need
from tests.unit.memopt.cfg.test_loop_nesting import drawn

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
int step(int state, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case 'a': state += 3; break;
        case 'b': state *= 5; break;
        case 'c': state ^= 7; break;
        case 'd': putchar(state); break;
        case 'e': state -= 11; break;
        case 'f': state = -state; break;
        case 'g': state /= 3; break;
        case 'h': state <<= 1; break;
        case 'k': return state;
        }
    return state;
}
int main(int count, char **words)
{
    int state = count;
    for (int i = 1; i < count; i++)
        state = step(state, words[i]);
    printf("%d\\n", state);
    return 0;
}
"""


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


def built(folder: Path, compiler: str, *flags: str, source: str = SOURCE) -> list[FunctionStructure]:
    need(compiler)
    (folder / "a.c").write_text(source)
    subprocess.run([compiler, *flags, "-o", "a", "a.c"], cwd=folder, check=True)
    with Image(str(folder / "a")) as image:
        return list(structures(image, Symbols(image).everything))


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


@pytest.mark.parametrize("flags", [("-O2",), ("-O2", "-fno-plt"), ("-O2", "-fcf-protection=full")], ids=" ".join)
def test_calls_of_other_files_have_names(tmp_path: Path, flags: tuple[str, ...]) -> None:
    found = {f.function.name: set(f.symbols.values()) for f in built(tmp_path, "gcc", *flags)}
    assert found["main"] == {"printf"}
    assert found["step"] & {"putc", "putchar"}


@pytest.mark.parametrize("seed", range(60))
def test_intervals_are_those_of_dominance(seed: int) -> None:
    graph = drawn(seed)
    dominators, found = immediate_dominators(graph), intervals(graph)
    for one in graph.blocks:
        for other in graph.blocks:
            inside = found[one][0] <= found[other][0] <= found[one][1]
            assert inside == dominates(dominators, one, other)
