"""The nest of a snapshot, ready to be lifted: the flow graph is found again from the code in it, without any file.

Example: the header of ``multiply`` is at 0x401150, the bytes of the function are in the snapshot: so are its loops.

In: a ``Snapshot``, the sandbox with its pages. Out: ``LoopCode``; where the patch would go. Raises Rejected where the
code is no nest that memopt understands. No more than the code around the header is read, whatever the snapshot says
about sizes.
"""

from __future__ import annotations

from contextlib import nullcontext

from memopt.cfg.jump_tables import switches
from memopt.ir.reasons import Reason, Rejected
from memopt.session.replacing.callees import Callees
from memopt.session.replacing.site import LoopCode, site_from
from memopt.session.replacing.site import code_of as code_of_site
from memopt.session.snapshotting.recording import Recorded
from memopt.snapshots.form import Snapshot
from memopt.x86.code_pointers import Surroundings
from memopt.x86.displacement import Displacement, displacement
from runtime.target.memory import Mapping, mapping_at
from runtime.trial.shadow import Shadow

Interval = tuple[int, int]


def code_of(snapshot: Snapshot, shadow: Shadow) -> LoopCode:
    """The nest at the header, of ``snapshot`` in the sandbox ``shadow``."""
    nest = snapshot.nest
    mapping = mapping_at(shadow.origin, nest.header)
    if mapping is None or not mapping.executable:
        raise Rejected(Reason.NOT_A_NEST, f"nothing executable is mapped at {nest.header:#x}")
    low, high = _around(snapshot, mapping)
    extent = nest.extent if nest.extent is not None and low <= nest.extent[0] and nest.extent[1] <= high else None
    part = Mapping(low, high, mapping.perms, mapping.shared, mapping.offset, mapping.device, mapping.inode,
                   mapping.path)
    site = site_from(part, nest.bias, nest.function, extent, nest.header, snapshot.read_some, set())
    loop = next((x for x in site.loops if x.header == nest.header), None)
    if loop is None:
        raise Rejected(Reason.NOT_A_NEST, f"no loop begins at {nest.header:#x}")
    callees = Callees(shadow.tracee.memory, shadow.origin, site.text, Recorded(snapshot.symbols))
    return code_of_site(site, loop, lambda: nullcontext(callees))


def _around(snapshot: Snapshot, mapping: Mapping) -> Interval:
    """The part of the executable mapping from the first to the last of its pages in the snapshot."""
    pages = [(max(p.start, mapping.start), min(p.end, mapping.end)) for p in snapshot.pages
             if p.start < mapping.end and p.end > mapping.start]
    if not any(low <= snapshot.nest.header < high for low, high in pages):
        raise Rejected(Reason.NOT_A_NEST, f"its code at {snapshot.nest.header:#x} is not in the snapshot")
    return pages[0][0], pages[-1][1]


def displaced_of(snapshot: Snapshot, code: LoopCode) -> Displacement:
    """The instructions at the header that a patch covers. The rest of the program, which may hold branches to them, was
    searched before the snapshot was written, and does not run in the sandbox."""
    site = code.site
    pages = next(p for p in snapshot.pages if p.start <= code.loop.header < p.end)

    def read(address: int, size: int) -> bytes:
        found = snapshot.read_some(address, size)
        if len(found) < size:
            raise Rejected(Reason.NOT_A_NEST, f"its code at {address + len(found):#x} is not in the snapshot")
        return found

    known = frozenset(switches(site.graph, snapshot.read_some, site.extent or site.text))
    return displacement(read, site.graph, code.loop, (pages.start, pages.end), Surroundings(True, site.extent, known))
