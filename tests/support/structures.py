"""Structures of the functions (memopt.cfg.functions) of a C program that the test compiles."""

from __future__ import annotations

import subprocess
from pathlib import Path

from memopt.cfg.functions import FunctionStructure, structures
from memopt.elf.image import Image
from memopt.elf.symbols import Symbols
from tests.support.tools import need

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


def built(folder: Path, compiler: str, *flags: str, source: str = SOURCE) -> list[FunctionStructure]:
    """The functions of ``source``, compiled in ``folder``."""
    need(compiler)
    (folder / "a.c").write_text(source)
    subprocess.run([compiler, *flags, "-o", "a", "a.c"], cwd=folder, check=True)
    with Image(str(folder / "a")) as image:
        return list(structures(image, Symbols(image).everything))
