"""Call sites: the places at which the copy of a function may be left, and the code that follows the calling context.

Example: at ``call f`` the copy looks up the callee's node in the slot of its own node, pushes (node, site, stack
pointer) on the thread's stack of calls, and jumps to the copy of ``f``; the slot is empty at the first call, and memopt
is asked.

In: the writer of the copy, the layout of nodes, the shared routines, the table of targets. Out: code, and a ``Site``
for each place.
"""

from __future__ import annotations

from memopt.ir.graph import DecodedInstruction
from runtime.recording.translation import encode
from runtime.recording.translation.encode import (
    JUMP_RELATIVE,
    RAX,
    RCX,
    RDX,
    RSP,
    double,
    jump_by_state,
    lea,
    lea_relative,
    lea_sum,
    load,
    load_indexed,
    load_state,
    low_16_bits,
    store,
    store_state,
)
from runtime.recording.translation.layout import (
    CALL_BYTES,
    CALL_NODE,
    CALL_SITE,
    CALL_STACK,
    DESTINATION,
    NODE,
    NODE_CALLER,
    NODE_SITE,
    RECORD,
    SAVED,
    SLOT,
    TARGET,
    TOP,
)
from runtime.recording.translation.probe_routines import Routines, restore
from runtime.recording.translation.relocations import Of
from runtime.recording.translation.unit import Linkage, NodeLayout, Site
from runtime.recording.translation.writer import Writer


class CallSites:
    """The call sites of one function, in the order in which they are written."""

    def __init__(self, write: Writer, node: NodeLayout, shared: Routines, table: int, linkage: Linkage) -> None:
        """``linkage``: of the function."""
        self._write, self._node, self._shared, self._table, self._linkage = write, node, shared, table, linkage
        self._sites: list[tuple[int, int | None, int, bool]] = []  # address, target, end, returns

    def add(self, instruction: DecodedInstruction | None, address: int, target: int | None, returns: bool) -> int:
        """A new site at ``instruction``, or at ``address`` where there is none; its number. ``returns``: a callee comes
        back to it.
        """
        end = address if instruction is None else instruction.end
        self._sites.append((address if instruction is None else instruction.address, target, end, returns))
        return len(self._sites) - 1

    def leave(self, site: int) -> None:
        """Writes a direct jump to another function (a tail call), which returns to this function's caller."""
        w = self._write
        w(store_state(SAVED[1], RCX), store_state(SAVED[2], RDX))
        w(load_state(RDX, NODE), load(RCX, RDX, self._node.slot_of(site)))
        w.if_zero(("new", site))
        w.place(("go on", site))
        w(store_state(NODE, RCX), load_state(RCX, SAVED[1]), load_state(RDX, SAVED[2]))
        w.to_label(JUMP_RELATIVE, ("link", site))
        self.no_callee_yet(site)

    def no_callee_yet(self, site: int) -> None:
        """Writes, directly behind a site, the path for a node that has no callee there yet."""
        w = self._write
        w.place(("new", site))
        w.to_label(lea_relative(RCX), ("record", site))
        w(store_state(RECORD, RCX), store_state(SAVED[0], RAX))
        w.to(encode.JUMP, self._shared.call)

    def push(self, site: int) -> None:
        """Pushes a call on the thread's stack of calls. Precondition: the caller's node is in rdx, rcx is in use, rax
        is free. Leaves rdx free.
        """
        w = self._write
        w(load_state(RAX, TOP), store(RAX, CALL_NODE, RDX))
        w.to_label(lea_relative(RDX), ("record", site))
        w(store(RAX, CALL_SITE, RDX), store(RAX, CALL_STACK, RSP), lea(RAX, RAX, CALL_BYTES), store_state(TOP, RAX))

    def by_table(self, site: int) -> None:
        """Goes to the original address in rcx by the table of targets. Precondition: rax, rcx and rdx are saved."""
        w, found = self._write, ("found", site)
        if self._linkage is Linkage.NONE or self._sites[site][3]:
            w(load_state(RDX, NODE), lea(RDX, RDX, self._node.slot_of(site)), store_state(SLOT, RDX))
        else:  # what it jumps to belongs to its caller, and is the same whether it comes from the stub or the resolver
            w(load_state(RDX, NODE))
            w(load(RAX, RDX, NODE_SITE) if self._linkage.continues else lea(RAX, RDX, self._node.slot_of(site)))
            w(store_state(SLOT, RAX), load(RDX, RDX, NODE_CALLER), store_state(NODE, RDX))
        w(store_state(TARGET, RCX))
        w(low_16_bits(RAX, RCX), double(RAX), load_indexed(RDX, RAX, self._table), lea_sum(RCX, RCX, RDX))
        w.if_zero(found)
        w.to(encode.JUMP, self._shared.lookup)
        w.place(found)
        w(load_indexed(RDX, RAX, self._table + 8), store_state(DESTINATION, RDX))
        restore(w)
        w(jump_by_state(DESTINATION))

    def records(self) -> tuple[Site, ...]:
        """Writes the records of the sites, behind the code."""
        w, made = self._write, []
        w(bytes(-w.here % 8))
        for index, (address, target, end, returns) in enumerate(self._sites):
            record = w.here
            w.place(("record", index))
            labels = w.labels
            copy = labels.get(("return", index), 0)
            w.word(-end, Of.MINUS_ORIGINAL)
            _address(w, copy, Of.COPY)
            w.place(("return address", index))
            w.word(end, Of.ORIGINAL)
            w.place(("link", index))
            w(bytes(8))
            _address(w, target or 0, Of.ORIGINAL)
            w(bytes(16), self._node.slot_of(index).to_bytes(8, "little"))
            _address(w, labels.get(("go on", index), 0), Of.COPY)
            made.append(Site(address, target, end, returns, self._node.slot_of(index), record, copy))
        return tuple(made)


def _address(w: Writer, address: int, kind: Of) -> None:
    """Writes an address; 0 stands for none."""
    if address:
        w.word(address, kind)
    else:
        w(bytes(8))
