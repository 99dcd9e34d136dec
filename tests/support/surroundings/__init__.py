"""Random nests with random surroundings: ``python -m tests.support.surroundings --help``.

Example: a drawn nest is called until memopt has replaced it; then two threads enter it, a timer's handler looks at its
progress counter, and at last the program confines itself. Each of these is a kind of surroundings, written once in C
(tests/programs/surroundings); here is drawn which of them act on which nest, and each program is run natively twice and
once under memopt: all three must print the same.

- ``kinds``: the kinds of surroundings, what each needs of the nest, and its numbers.
- ``draw``: programs by number: a nest of tests.support.random_nests, or a larger one, with its surroundings.
- ``stores``: which outer iteration stores to an element last.
- ``text``: the nest's function in C, with a counter, a stop flag or a constant in its code; and the file that calls it.
- ``build``: a program is compiled; the kinds are compiled once.
- ``eager``: the command ``memopt``, for which any gain is enough.
- ``check``: a program is run and compared.
"""
