"""The tables of compiled programs, as they are in the process, and a loop that a switch enters in its middle."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.measure.execution import run, run_under_memopt
from memopt.cfg.functions import flow
from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from memopt.ir.graph import Kind
from memopt.ir.reasons import Rejected
from memopt.session.replacing.reservation import surroundings
from memopt.session.replacing.site import find_site
from memopt.x86.code_pointers import Part, named
from memopt.x86.displacement import displacement
from runtime.target.memory import Mapping, Memory, mappings
from tests.support.effort import some_rows
from tests.support.tools import need
from tests.support.waiting import PATIENCE

PROGRAM = Path(__file__).parents[1] / "programs" / "entered_inside.c"
SOURCE = """
#include <unistd.h>
int labels(const unsigned char *at, int state)
{
    static const void *const ways[] = {&&add, &&scale, &&flip, &&take, &&end};
    goto *ways[*at++];
add: state += 1; goto *ways[*at++];
scale: state *= 3; goto *ways[*at++];
flip: state ^= 0x55; goto *ways[*at++];
take: state -= 7; goto *ways[*at++];
end: return state;
}
int cases(int state, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case 'a': state += 3; break;
        case 'b': state *= 5; break;
        case 'c': state ^= 7; break;
        case 'd': state = getppid(); break;
        case 'e': state -= 11; break;
        case 'f': state = -state; break;
        case 'g': state /= 3; break;
        case 'k': return state;
        }
    return state;
}
int main(int count, char **words)
{
    char byte;
    if (write(1, "!", 1) != 1 || read(0, &byte, 1) != 1)
        return labels((unsigned char *)words[0], count) + cases(count, words[0]);
    return 0;
}
"""


@contextmanager
def waiting(program: Path) -> Iterator[int]:
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        yield process.pid
        process.kill()


def parts(memory: Memory, maps: tuple[Mapping, ...], program: Path) -> tuple[Part, tuple[Part, ...]]:
    own = {m: Part(m.start, memory.read(m.start, m.end - m.start)) for m in maps
           if m.path == os.path.realpath(program)}
    text = next(part for m, part in own.items() if m.executable)
    return text, tuple(part for part in own.values() if part is not text)


@pytest.mark.parametrize("flags", ["-O0", "-O1", "-O2", "-O2 -no-pie -fno-pie", "-O0 -no-pie -fno-pie",
                                   "-O2 -fcf-protection=full", "-O1 -fno-pie -no-pie"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_target_of_a_compiled_table_is_named(tmp_path: Path, compiler: str, flags: str) -> None:
    need(compiler)
    (tmp_path / "a.c").write_text(SOURCE)
    program = tmp_path / "a"
    subprocess.run([compiler, *flags.split(), "-o", "a", "a.c"], cwd=tmp_path, check=True)
    with waiting(program) as pid:
        memory, maps = Memory(pid), mappings(pid)
        text, data = parts(memory, maps, program)
        with Image(str(program)) as image:
            bias = image.load_bias(text.start, next(m.offset for m in maps if m.start == text.start))
            functions = {f.name: f for f in Symbols(image).functions}
        targets, others = set[int](), set[int]()
        for name in ("labels", "cases"):
            start, end = functions[name].start + bias, functions[name].end + bias
            graph = flow(memory.read_some, start, (start, end))
            jumps = [b for b in graph.blocks.values() if b.kind is Kind.INDIRECT]
            assert all(len(b.successors) >= 4 for b in jumps), name
            assert jumps or "O2" in flags
            targets |= {s for b in jumps for s in b.successors}
            others |= {i.address for b in graph.blocks.values() for i in b.instructions[1:]}
        memory.close()
    assert len(targets) >= 5
    assert [hex(t) for t in targets if named({t}, text, data, closed=False) is None] == []
    wrong = [t for t in others - targets if named({t}, text, data, closed=False) is not None]
    assert len(wrong) <= len(others) // 10


@pytest.mark.parametrize(("compiler", "flags"), some_rows([
    ("clang", "-O2"), ("clang", "-O1"), ("clang", "-O2 -no-pie -fno-pie"), ("gcc", "-O2 -DDISTANCES"),
    ("clang", "-O2 -s -fno-asynchronous-unwind-tables"), ("clang", "-O2 -DLABELS"), ("clang", "-O2 -DDISTANCES"),
    ("clang", "-O2 -s -fno-asynchronous-unwind-tables -DLABELS"), ("gcc", "-O2 -DLABELS"), ("gcc", "-O1"),
], 2))
@pytest.mark.long
def test_a_loop_that_is_entered_in_its_middle(tmp_path: Path, compiler: str, flags: str) -> None:
    """The way in leads to the second instruction of the outer loop. A loop is replaced, at a place that is no way in,
    or the report says why none is."""
    need(compiler)
    program = tmp_path / "program"
    subprocess.run([compiler, *flags.split(), "-w", "-o", program, PROGRAM], check=True)
    native, trial = run((str(program), "120"), PATIENCE), run_under_memopt((str(program), "120"), PATIENCE)
    assert trial.same_result(native)
    assert trial.report is not None
    hot = [loop for loop in trial.report["loops"] if loop["share"] > 0.2]
    assert hot
    for loop in hot:
        assert loop["iterations_run"] > 0 or loop["reason"] not in (None, "internal-error", "shadow-mismatch")


def test_nothing_under_the_patch_is_named(tmp_path: Path) -> None:
    """Of every header in the program that leaves room; the ways in are in the same text."""
    need("clang")
    program = tmp_path / "program"
    subprocess.run(["clang", "-O2", "-w", "-o", program, PROGRAM], check=True)
    with subprocess.Popen([program, "100000"], stdout=subprocess.DEVNULL) as process:
        try:
            pid = process.pid
            while not (place := next((m for m in mappings(pid) if m.executable and m.path == str(program)), None)):
                time.sleep(0.001)
            with Image(str(program)) as image:
                bias = image.load_bias(place.start, place.offset)
                product = next(f for f in Symbols(image).functions if f.name == "product")
            memory = Memory(pid)
            graph = flow(memory.read_some, product.start + bias, (product.start + bias, product.end + bias))
            jump = next(b for b in graph.blocks.values() if b.kind is Kind.INDIRECT)
            entered = {i.address for b in graph.blocks.values() for i in b.instructions} & set(jump.successors)
            inner = max(product.start + bias, *entered)
            site = find_site(pid, inner)
            refused = dict[int, str]()
            for loop in site.loops:
                around = surroundings(site, memory.read_some, pid)
                assert not around.closed
                try:
                    found = displacement(memory.read, site.graph, loop, site.text, around)
                except Rejected as rejected:
                    refused[loop.header] = rejected.reason.value
                else:
                    under = {i.address for i in found.instructions[1:]}
                    assert not under & set(jump.successors)
            assert refused
            memory.close()
        finally:
            process.kill()
