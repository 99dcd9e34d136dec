"""The memory that probes and memopt share: page, calling-context tree and stack of calls of a thread, table of targets.

All of it is made of words of eight bytes.

- The page of a thread lies where gs points to.
- A node is a function in a calling context. Its words, by offset:

    0 unit   8 caller   16 callees without a site   24 site   32 counters ...   then a slot for each site

- The site is given by its record, or by its slot in the caller's node. The slot of a direct call has the node of its
  callee, or 0. The slot of an indirect call has a list of cells (unit, node, next).
- Probes make nodes and cells themselves, in chunks of memory: nodes upwards, cells downwards.
- The stack of calls has (caller's node, record of the site, stack pointer with the return address on top) for each call
  that has not returned.
- The table of targets maps original addresses to copies: a hash table, by the low 16 bits, then upwards to the next
  free entry. An entry is (minus the original address, copy).
"""

from __future__ import annotations

# The buffer for the trace of a thread (memopt.traces.core.format) ends at a multiple of TRACE_ALIGNMENT, with room
# behind. So it is full when the bits 16 to 23 of TRACE are zero.
TRACE_ALIGNMENT = 1 << 24
TRACE_START = (1 << 24) - (1 << 22)  # behind a multiple of the alignment
TRACE_BYTES = 2 * TRACE_ALIGNMENT  # of address space
MOST_ACCESSES = 4000  # of a block: its words must fit in the room behind the buffer

SAVED = (0, 8, 16)  # the program's rax, rcx, rdx while a probe runs
TARGET, DESTINATION, NODE, TOP, SLOT, RECORD, FLAGS = range(24, 80, 8)
KEPT = (80, 88, 96)  # the program's r11, rdi, rsi while a probe checks whether memopt is alive
NEXT_NODE, LAST_CELL = 104, 112  # the free part of the chunk lies between them
ASKED = 120  # the number of the question that the thread waits for memopt to answer; 0 for none
TEXTS = ((128, 136), (184, 192))  # between each two addresses lies code that has been copied: libraries, the program
TRACE = 144  # where the next word of the trace goes
ASKED_AT, ANSWERED_AT, WAITED = 152, 160, 168  # time stamps of the last question; cycles waited for memopt in all
GO_ON = 176  # where the program goes on behind the answer

NODE_UNIT, NODE_CALLER, NODE_STRAY, NODE_SITE, NODE_COUNTERS = 0, 8, 16, 24, 32
CELL_BYTES, CELL_NODE, CELL_NEXT = 24, 8, 16

CALL_BYTES, CALL_NODE, CALL_SITE, CALL_STACK = 32, 0, 8, 16

TABLE_ENTRIES = 1 << 16
TABLE_BYTES = 16 * TABLE_ENTRIES

# The record of a site: the call, the callee once it is known, and the code behind the probe.
(SITE_MINUS_RETURN, SITE_COPY_RETURN, SITE_RETURN, SITE_LINK, SITE_TARGET, SITE_UNIT, SITE_NODE_BYTES, SITE_SLOT,
 SITE_GO_ON) = range(0, 72, 8)

# The record of a way in (a target in the table): the unit, where its copy goes on, the size of its nodes.
WAY_UNIT, WAY_COPY, WAY_NODE_BYTES = 0, 8, 16
WAY_BYTES = 24
