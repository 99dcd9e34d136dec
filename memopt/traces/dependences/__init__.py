"""Finds the data dependences through memory between accesses, by the loop that carries them, with their distances.

In: words of a thread's trace (``core/format.py``). Out: ``Dependence``: kind, source, sink, carrying loop, least and
most distance in iterations, count.

May be touched: the shadow memory and the other tables of one ``Dependences``, which nothing outside this room reads.

Shadow memory keeps the history of a place in one of three forms, and places move between them: cells for words and
parts of words, lines for 64 bytes with wide accesses, strips for many cells with one history. Steady iterations of a
loop (the same blocks, each access a constant distance further on) are processed all at once. The result equals that of
the scan word by word, counts included.

- ``dependences``: the analysis itself: feeds words to the kernels, lets tables grow, returns the results.
- ``scan``: reads the trace word by word, and looks for steady iterations at loop headers.
- ``accesses``: looks up the shadow cells of one access, splits them, and records the dependences.
- ``touch``: applies a read or write to one shadow cell, and records the dependences.
- ``carrying_loop``: finds the loop that carries a dependence, and counts the dependence.
- ``prefetch``: prefetches the shadow memory of the words that come next, if that pays.
- ``state``: where all tables lie.
- ``shadow_memory``: the cells of words and of parts of words, with their readers.
- ``shadow_lines``: 64 bytes kept as a list of entries, for wide accesses.
- ``shadow_strips``: cells at a constant distance kept as one, with times linear in the place.
- ``steady_iterations``: finds steady iterations by comparing words of the trace.
- ``steady_runs``: computes what a run of steady iterations does.
- ``clusters``: splits the accesses of a steady run into clusters that share no word.
- ``chains``: splits the places of a cluster into chains, and applies the accesses to their strips.
- ``strip_access``: applies an access of a steady run to all places of a strip.

Tested by: tests/unit/memopt/traces/dependences. test_dependences.py compares random nests with a plain model and covers
``dependences``, ``scan``, ``accesses``, ``touch``, ``carrying_loop``, ``state``, ``shadow_memory``, ``shadow_strips``,
``steady_iterations``, ``steady_runs``, ``clusters``, ``chains`` and ``strip_access``; test_shadow_lines.py and
test_prefetch.py cover the modules of their names.
"""
