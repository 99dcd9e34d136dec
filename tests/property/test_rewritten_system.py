"""Programs and libraries of the system are rewritten and undone to the byte, or refused by name.

With MEMOPT_ALL_CASES=1 all of them are.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from memopt.elf.executable import check_rewritten
from memopt.elf.image import ElfError, Image
from memopt.elf.rewriting.refusals import NotRewritable, check_file
from memopt.elf.rewriting.undo import undone
from memopt.elf.rewriting.writer import Addition, Patch, written
from tests.support.effort import some
from tests.support.rewritten import code_of

FOLDERS = ("/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu")
MOST_BYTES, MOST_COMPARED = 40 << 20, 2 << 20
PARTS = 40


def files() -> list[str]:
    """The regular files of ``FOLDERS``, each once."""
    found = {os.path.realpath(entry) for folder in FOLDERS if os.path.isdir(folder) for entry in Path(folder).iterdir()}
    return sorted(path for path in found if os.path.isfile(path) and os.path.getsize(path) <= MOST_BYTES)


def is_refused(image: Image, path: str) -> bool:
    """Whether the file is refused by a reason of its own; that its layout cannot be extended is no such reason."""
    try:
        check_file(image, path)
    except NotRewritable:
        return True
    return False


@pytest.mark.parametrize("part", some(range(PARTS), 1, most=8))
def test_all_files_fit_and_come_back(part: int) -> None:
    fitted = 0
    for path in files()[part::PARTS]:
        with suppress(ElfError, OSError), Image(path) as image:
            if is_refused(image, path):
                continue
            new = written(image, Addition(b"\xcc" * 300, 4096, (Patch(code_of(image), b"abcde"),)))
            original = image.read(0, image.size)
            back = undone(new)
            assert back.whole, path
            assert back.content == original
            if len(original) <= MOST_COMPARED:
                check_rewritten(original, new)
            fitted += 1
    assert fitted or not files()[part::PARTS]
