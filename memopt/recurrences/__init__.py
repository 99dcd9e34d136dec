"""Recurrences: values that an iteration of a loop takes over from the one before, in registers and in frame slots.

Example: in ``for (i = 0; i < n; i++) s += a[p->k], p = p->next;`` the loop carries i (an induction), s (a sum) and p (a
recurrence: no iteration can begin before the one before it is done). A memory trace shows none of the three if the
compiler keeps them in registers, and shows the counter as a dependence if the compiler has spilled it to the stack.

In: the flow graph of a function and its loop nesting. Out: ``Recurrences``, which says of each loop what it carries, of
a dependence between two accesses to the frame whether it is that of an induction, and of a load and a store whether
they are those of a sum (``x[k] += y``).
May be touched: nothing; all functions are pure.

A register of a kind that is not modelled (x87, masks of AVX-512) is named as carried: the answer may call a value
carried that is not, never the other way round. It relies on the calling convention of the System V ABI, and on
compilers' code: a register that a call may change is not read behind the call.

- ``recurrences``: the front door: classifies what a loop carries.
- ``values``: the values of a function in static single assignment form.
- ``frame``: the frame slots of a function.
- ``demand``: which bits of each value anybody looks at.
- ``inductions``: whether a value grows by the same amount in each iteration.
- ``reloads``: whether a value is an element that the iteration before has loaded.
- ``sums``: whether a chain of operations is a sum, product, minimum or maximum.
- ``callees``: the registers that a called function reads and writes.

Tested by: tests/unit/memopt/recurrences/test_recurrences.py covers ``recurrences``, ``values``, ``frame``, ``demand``,
``inductions``, ``reloads``, ``sums`` and ``callees``; tests/live/test_parallel_loops.py compares verdicts with those by
hand.
"""
