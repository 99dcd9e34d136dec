"""What probes and memopt agree on: the page of a thread, its tree, its stack of calls, the table of targets.

A thread's page lies where gs points to. A node is a function in a calling context:

    0 unit   8 caller   16 callees of no site   24 site   32 counters ...   then a slot for each site

The site is told by its record, or by its slot in the caller's node. A slot of a direct call holds the node of its
callee, or 0; one of an indirect call holds a list of cells (unit, node, next). Nodes are made upwards and cells
downwards in chunks of memory, by the probes themselves. The stack of calls holds (caller's node, record of the site,
stack pointer with the return address on top) for each call that has not returned. The table maps original addresses to
copies by their low 16 bits, then upwards to the next free entry: (minus the original, copy). Everything is made of
words of eight bytes.
"""

from __future__ import annotations

# The buffer for the trace of a thread (memopt.traces.core.format) lies in front of a multiple of TRACE_ALIGNMENT, with
# room
# behind: the bits of TRACE from 16 to 23 are zero where it is full.
TRACE_ALIGNMENT = 1 << 24
TRACE_START = (1 << 24) - (1 << 22)  # behind a multiple of the alignment
TRACE_BYTES = 2 * TRACE_ALIGNMENT  # of address space
MOST_ACCESSES = 4000  # of a block

SAVED = (0, 8, 16)  # rax, rcx, rdx while a probe works
TARGET, DESTINATION, NODE, TOP, SLOT, RECORD, FLAGS = range(24, 80, 8)
KEPT = (80, 88, 96)  # r11, rdi, rsi while it is looked whether memopt lives
NEXT_NODE, LAST_CELL = 104, 112  # what is free of the chunk lies between
ASKED = 120  # what memopt is waited for: the number of a question, 0 for nothing
LOWEST_TEXT, END_OF_TEXTS = 128, 136  # where code lies that may be unmapped
TRACE = 144  # where the next word of the trace goes
ASKED_AT, ANSWERED_AT, WAITED = 152, 160, 168  # by the time stamp counter; how long memopt was waited for, in all
GO_ON = 176  # where the program goes on when it has been answered

NODE_UNIT, NODE_CALLER, NODE_STRAY, NODE_SITE, NODE_COUNTERS = 0, 8, 16, 24, 32
CELL_BYTES, CELL_NODE, CELL_NEXT = 24, 8, 16

CALL_BYTES, CALL_NODE, CALL_SITE, CALL_STACK = 32, 0, 8, 16

TABLE_ENTRIES = 1 << 16
TABLE_BYTES = 16 * TABLE_ENTRIES

# What the probes of a site know: of the call, of the callee once it is known, and of the code behind the probe.
(SITE_MINUS_RETURN, SITE_COPY_RETURN, SITE_RETURN, SITE_LINK, SITE_TARGET, SITE_UNIT, SITE_NODE_BYTES, SITE_SLOT,
 SITE_GO_ON) = range(0, 72, 8)

# A way in from the table: the unit, where its copy goes on, how large its nodes are.
WAY_UNIT, WAY_COPY, WAY_NODE_BYTES = 0, 8, 16
WAY_BYTES = 24
