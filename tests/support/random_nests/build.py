"""A batch of programs as one executable: one object file for each way of compiling, one for all calls."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.random_nests.program import Build, Program, layout
from tests.support.random_nests.text import HEADER, Writer

_DRIVER = Path(__file__).resolve().parents[2] / "programs" / "random_nests.c"


@dataclass(frozen=True, slots=True)
class Batch:
    """``functions``: the address in the file of each program's nest."""

    path: Path
    programs: tuple[Program, ...]
    functions: tuple[int, ...]


def build(programs: Sequence[Program], folder: Path) -> Batch:
    """Precondition: all programs are position-independent, or none is. ``folder`` is to be empty."""
    groups: dict[Build, list[str]] = defaultdict(list)
    calls = []
    for program in programs:
        made = layout(program)
        writer = Writer(program)
        groups[program.build].append(writer.nest(made.sizes))
        calls.append(writer.caller(made))
    table = ", ".join(f"&p{p.seed}" for p in programs)
    (folder / "programs.h").write_text("\n".join((*calls, f"static const struct program *programs[] = {{ {table} }};")))
    objects = [_compile(("gcc", "-O1", "-w", f"-I{folder}", "-fPIE"), _DRIVER, folder / "driver.o")]
    for number, (how, texts) in enumerate(groups.items()):
        source = folder / f"nests{number}.c"
        source.write_text(HEADER + "\n".join(texts))
        objects.append(_compile((*how.command, "-w"), source, folder / f"nests{number}.o"))
    path = folder / "nests"
    pie = "-pie" if programs[0].build.pie else "-no-pie"
    _run(("gcc", pie, "-o", str(path), *map(str, objects), "-lm"))
    return Batch(path, tuple(programs), _functions(path, programs))


def _compile(command: Sequence[str], source: Path, output: Path) -> Path:
    _run((*command, "-c", "-o", str(output), str(source)))
    return output


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[:2000]}")


def _functions(path: Path, programs: Sequence[Program]) -> tuple[int, ...]:
    output = subprocess.run(["nm", str(path)], check=True, capture_output=True, text=True).stdout
    found = {f[2]: int(f[0], 16) for f in map(str.split, output.splitlines()) if len(f) == 3}
    return tuple(found[f"f{p.seed}"] for p in programs)
