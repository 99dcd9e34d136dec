"""What the source says about the loops of a process: their lines, and the statement behind a refusal.

Example: the loop at 0x401150 of ``spmv`` is ``spmv.c:10``; it is refused because "the address is loaded at 0x401162",
and that is in line 12, ``s += a[k] * x[col[k]];``. In: sites, and details of refusals. Out: values for the report. The
files are read while the program runs, because it may end at any moment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.cfg.loop_control import loop_control
from memopt.elf.lines import SourceLine, SourceLines, source_text
from memopt.report.model import Statement

if TYPE_CHECKING:
    from memopt.ir.graph import Loop
    from memopt.session.replacing.site import Site

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_MOST_TEXT = 60  # characters of a statement


class Sources:
    """The source lines of the files of one process."""

    def __init__(self) -> None:
        self._files: dict[str, SourceLines] = {}

    def of_loop(self, site: Site, loop: Loop) -> SourceLine | None:
        """The line of ``loop``, a candidate of ``site``, or a loop in it."""
        forest = site.views.get(loop, site.forest)
        return self._lines(site).of_loop(loop_control(forest.graph, forest.loops, loop), site.bias)

    def of_header(self, site: Site, address: int) -> SourceLine | None:
        """The line of the loop with its header at ``address``; that of the instruction there if there is none."""
        loop = next((x for x in (*site.loops, *site.forest.loops) if x.header == address), None)
        return self._lines(site).at(address - site.bias) if loop is None else self.of_loop(site, loop)

    def statement(self, site: Site, detail: str) -> Statement | None:
        """The statement at the first address in ``detail`` that lies in the code of ``site``."""
        for found in _ADDRESS.findall(detail):
            address = int(found, 16)
            if site.text[0] <= address < site.text[1]:
                source = self._lines(site).at(address - site.bias)
                return None if source is None else Statement(source, _text(source))
        return None

    def _lines(self, site: Site) -> SourceLines:
        return self._files.setdefault(site.path, SourceLines(site.path))


def _text(source: SourceLine) -> str:
    lines = source_text(source.file)
    text = " ".join(lines[source.line - 1].split()) if source.line <= len(lines) else ""
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT - 3] + "..."
