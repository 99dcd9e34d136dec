"""The byte by which a version knows that the program has one thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memopt.ir.linear import Linear
from memopt.ir.reasons import Rejected
from memopt.ir.region import Cell, Region, Relation, Trips
from memopt.ir.scop import Scop
from memopt.session.replacing.one_thread_guards import one_thread
from runtime.target.memory import Memory, mappings

_ALONE = "import sys; print(flush=True); sys.stdin.read()"
_THREADS = "import sys, threading; threading.Thread(target=sys.stdin.read).start(); print(flush=True)"
_REGION = Region(0, b"", (), Trips(Linear.of(1), 1), (), (), (), Scop((), ()))


@pytest.mark.parametrize(("script", "expected"), [(_ALONE, 1), (_THREADS, 0)])
def test_the_guards_read_what_the_c_library_says(script: str, expected: int) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        region = one_thread(_REGION, program.pid, mappings(program.pid))
        memory = Memory(program.pid)
        cells = [x.location for x in region.live_ins if isinstance(x.location, Cell) and not x.location.base]
        assert cells
        assert {memory.read(c.displacement, 1)[0] for c in cells} == {expected}
        memory.close()
        assert all(isinstance(g, Relation) and g.equal and g.expression.constant == -1 for g in region.guards)
        program.communicate()


def test_where_nothing_tells_the_loop_is_refused() -> None:
    """As in a static program without symbols."""
    with pytest.raises(Rejected, match="nothing tells at an entry"):
        one_thread(_REGION, 1, ())
