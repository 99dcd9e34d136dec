"""Symbolic values of machine code, their arithmetic and canonical form, and the loop tree they stand in.

In: operators and operands of machine operations (memopt.ir.operations), captured values. Out: ``Value``s, obligations,
``LoopNode`` trees, ``Request``s for another attempt at lifting.
May be touched: imports only memopt.ir. Every rewrite is an identity on bit patterns, exact modulo 2**width; where one
holds only for some numbers, an obligation is recorded.

Values and their arithmetic:

- ``values``: the value types: affine integers, loaded, carried and final values, operations, truth values.
- ``algebra``: symbolic execution of each operator on values.
- ``numbers``: samples, obligations and specialisation: when a value is a number, and under which conditions.
- ``extensions``: sign and zero extensions whose proof is left to the uses of their result.
- ``requests``: the requests that end an attempt at lifting: start again with one more assumption.
- ``budget``: the time that lifting may take.

Canonical form:

- ``canonical``: one form for equal values, whichever instructions made them.
- ``bits``: bit fields, masks and selects: extraction, concatenation, bitwise operations.

Loops:

- ``loop_tree``: the lifted nest: loops, guarded items, loads and stores.
- ``bounds``: bounds of affine expressions over all iterations of a nest.

Tested by: tests/unit/memopt/lifting/values, a file for each module; ``budget`` by test_requests.py. ``canonical`` is
also covered by tests/unit/memopt/lifting/demotion/test_statement_types.py, ``loop_tree`` by
tests/unit/memopt/lifting/survey/test_footprints.py and by the golden tests of lifted nests.
"""
