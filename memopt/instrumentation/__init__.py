"""Where probes stand, and what they tell.

In: ``FlowGraph``, loop nesting. Out: counter places, path numbers, probe points, free registers. May be touched:
pure; writes no code (that is ``runtime/recording/translation``).

Modules: ``edge_counters``, ``hyperblocks``, ``induction_registers``, ``memory_operands``, ``path_numbering``,
``reductions``, ``scratch_registers``, ``value_probes``.
"""
