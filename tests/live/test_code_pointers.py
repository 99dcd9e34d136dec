"""The tables of compiled programs, as they are in the process, and a loop that a switch enters in its middle."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memopt.cfg.functions import flow
from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from memopt.ir.graph import Kind
from memopt.x86.code_pointers import Part, named
from runtime.target.memory import Mapping, Memory, mappings
from tests.support.tools import need
from tests.support.waiting import PATIENCE

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
                                   "-O2 -fcf-protection=full", "-O2 -mcmodel=large -fno-pie -no-pie",
                                   "-O2 -mcmodel=medium -fPIC"])
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
    assert len(wrong) <= len(others) // 20


@pytest.mark.parametrize("flags", ["-O2", "-O1", "-O2 -no-pie -fno-pie", "-O2 -s -fno-asynchronous-unwind-tables"])
def test_a_switch_into_a_loop(tmp_path: Path, flags: str) -> None:
    """The table leads to the second instruction of the loop, which is under the patch."""
    need("clang")
    (tmp_path / "a.c").write_text(INTO_A_LOOP)
    subprocess.run(["clang", *flags.split(), "-w", "-o", "a", "a.c"], cwd=tmp_path, check=True)
    command = [str(tmp_path / "a"), "300"]
    native = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE).stdout
    report = tmp_path / "report"
    memopt = [".venv/bin/python", "-m", "memopt", "exec", "--json", str(report), "--", *command]
    assert subprocess.run(memopt, capture_output=True, check=True, timeout=PATIENCE).stdout == native
    hot = [loop for loop in json.loads(report.read_text())["loops"] if loop["share"] > 0.2]
    assert hot
