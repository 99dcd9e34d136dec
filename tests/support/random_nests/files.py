"""The versions of a batch in a new ELF file, which runs natively: the third way to run random nests.

In: the versions that were made for each program of a batch. Out: the file; what it prints, and how often the versions
of each program have run in it.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from memopt.elf.image import Image
from memopt.elf.rewriting.files import replace_file
from memopt.elf.rewriting.record import record_of
from memopt.elf.rewriting.writer import written
from memopt.machine.detect import detect
from memopt.session.rewriting.assembly import addition
from memopt.session.rewriting.inspection import counters
from memopt.session.rewriting.training import Trained
from tests.support.random_nests.build import Batch
from tests.support.random_nests.replacing import any_work

_PATIENCE = 400.0
_Owners = Mapping[int, int]


def rewritten(batch: Batch, versions: Mapping[int, Sequence[Trained]], folder: Path) -> tuple[Path, _Owners] | None:
    """The file, and the number of the program that each header belongs to; None without versions."""
    trained = [t for some in versions.values() for t in some]
    if not trained:
        return None
    path = folder / "nests.new"
    with Image(str(batch.path)) as image, any_work():
        replace_file(str(path), written(image, addition(image, trained, detect())), str(batch.path))
    return path, {t.header: number for number, some in versions.items() for t in some}


def held(new: tuple[Path, _Owners], count: int) -> tuple[str, Counter[int]]:
    """What the file prints, and runs of its versions by program."""
    path, owners = new
    with open(path.with_suffix(".out"), "w+b") as output:
        process = subprocess.Popen([path, "0", str(count), "held"], stdin=subprocess.PIPE, stdout=output,
                                   stderr=subprocess.PIPE)
        assert process.stderr is not None
        runs = Counter[int]()
        if process.stderr.read(1):
            with Image(str(path)) as image:
                record = record_of(image)
                assert record is not None
                counted = counters(image, record, str(path), process.pid)
                for version, found in zip(record.versions, counted, strict=True):
                    runs[owners[version.header]] += found.runs
        process.communicate(timeout=_PATIENCE)
        output.seek(0)
        return output.read().decode(), runs
