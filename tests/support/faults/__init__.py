"""Programs on which memopt was wrong once (tests/programs/faults), each with what is right.

Example: ``python -m tests.support.faults --runs 20 --only stop-flag`` runs those whose names begin so, twenty times
where the outcome depends on time, and prints a line for each: how often it was right, how often new code was in
place.

- ``table``: the programs, how they are built, and what is right.
- ``running``: one run: built, run natively and under memopt, and judged.
- ``ways``: the ways to run a program under memopt: ``exec``, ``attach`` with ``--undo``, ``profile --exact``.

The programs tell by themselves whether new code is in place when they do what could go wrong (witness.h). A right
answer of a program that was never replaced is no pass, unless memopt says for what reason it left the program alone,
and that reason is among those that the table allows.
"""
