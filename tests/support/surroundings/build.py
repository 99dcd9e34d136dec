"""A program with surroundings, compiled: the nest, its limited copy, the file that calls both; the kinds only once.

Out: the path of the executable. Plug-ins stand beside it as 0.so and 1.so.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy

from tests.support.random_nests.program import layout
from tests.support.surroundings.draw import Surrounded
from tests.support.surroundings.stores import last_stores, outer_values
from tests.support.surroundings.text import SurroundedWriter, caller

_SOURCES = Path(__file__).resolve().parents[2] / "programs" / "surroundings"
_BUILT = Path(__file__).resolve().parents[3] / "build" / "tests"


def build(drawn: Surrounded, folder: Path) -> Path:
    """Precondition: ``folder`` is empty."""
    nest, forms = drawn.nest, drawn.forms
    made = layout(nest)
    command = (*nest.build.command, "-w", f"-I{_SOURCES}")
    for writer, name in ((SurroundedWriter(nest, forms), "nest"),
                         (SurroundedWriter(nest, forms, limited=True), "limited")):
        (folder / f"{name}.c").write_text(writer.written(made.sizes))
    _run(*command, "-c", "-o", folder / "limited.o", folder / "limited.c")
    if forms.plugged:
        for number in range(2):
            _run(*command, "-fPIC", f"-DPLUG={number}", "-shared", "-o", folder / f"{number}.so", folder / "nest.c",
                 "-lm")
        if forms.plugged == 2 and not _hand_loadable(folder / "0.so"):
            forms = replace(forms, plugged=1)
        size = _size(folder / "0.so", nest.seed)
    else:
        _run(*command, "-c", "-o", folder / "nest.o", folder / "nest.c")
        size = _size(folder / "nest.o", nest.seed)
    values = outer_values(nest, 0)
    (folder / "caller.c").write_text(caller(nest, forms, made, size, len(values)))
    (folder / "tables.s").write_text(_tables(drawn, folder, values))
    pie = "-static" if drawn.static else "-pie" if nest.build.pie else "-no-pie"
    objects = [folder / "limited.o", *([] if forms.plugged else [folder / "nest.o"])]
    code = "-fPIE" if nest.build.pie and not drawn.static else "-fno-pie"
    _run("gcc", "-O1", "-w", code, pie, f"-I{_SOURCES}", "-pthread", "-o", folder / "program", *_kinds(drawn.static),
         folder / "caller.c", folder / "tables.s", *objects, "-lm", "-ldl")
    return folder / "program"


def _hand_loadable(library: Path) -> bool:
    """Whether the code of ``library`` runs without the help of a loader: it calls nobody."""
    found = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True)
    return not [line for line in found.stdout.splitlines() if line.split()[0] != "w"]


def _tables(drawn: Surrounded, folder: Path, values: numpy.ndarray) -> str:
    """An assembly file with what is known of each element; the numbers stand in files beside it."""
    lines = [".section .rodata", ".balign 64"]
    tables = [("progress_values", values.astype(numpy.int64)),
              *((f"last{r}", table) for r, table in enumerate(last_stores(drawn.nest, 0)))]
    for name, table in tables:
        (folder / name).write_bytes(table.tobytes())
        lines += [f".globl {name}", ".balign 64", f"{name}: .incbin \"{folder / name}\""]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits']) + "\n"


@cache
def _kinds(static: bool) -> tuple[Path, ...]:
    """The driver and all kinds, as objects that processes share; a name tells the sources."""
    sources = sorted(_SOURCES.glob("*.c"))
    texts = (*sources, *_SOURCES.glob("*.h"), _SOURCES.parent / "faults" / "witness.h")
    digest = hashlib.sha256(b"\0".join(p.read_bytes() for p in sorted(texts))).hexdigest()[:16]
    place = _BUILT / f"surroundings-{digest}{'-static' if static else ''}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as name:
            folder = Path(name) / "objects"
            folder.mkdir()
            for source in sources:
                flags = ("-DSTATIC",) if static else ()
                _run("gcc", "-O1", "-w", "-fPIE", "-pthread", *flags, "-c", "-o", folder / f"{source.stem}.o", source)
            if not place.exists():
                os.rename(folder, place)
    return tuple(place / f"{s.stem}.o" for s in sources)


def _size(path: Path, seed: int) -> int:
    """Bytes of the nest's function."""
    output = subprocess.run(["nm", "-S", path], check=True, capture_output=True, text=True).stdout
    fields = next(f for f in map(str.split, output.splitlines()) if f[-1] == f"f{seed}")
    return int(fields[1], 16)


def _run(*words: object) -> None:
    command: Sequence[str] = [str(w) for w in words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[:2000]}")
