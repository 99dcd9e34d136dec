"""Measures the running program: where its time goes, and whether an installed version gains.

In: samples of the instruction pointer, the counters of a version, processor time. Out: the hottest address that is not
decided yet; a verdict on a version.
May be touched: nothing in the process but a version's limit in its frame, which makes it rest for an interval.

- ``hotness``: where the samples fall, and the hottest address that is not decided yet.
- ``verdict``: the verdict on an installed version, from its counters.
- ``ab_measurement``: the gain of an installed version: intervals with it and with the original, in turns.

Tested by: tests/unit/memopt/session/measuring, a file for each module.
"""
