"""The machine description: caches, page size, vector extensions and clock rates, detected or read from TOML.

In: sysfs, CPUID, /proc/cpuinfo; or the text of a description. Out: a ``Machine``, a frozen value that the cost models
(``memopt.models``) and the choice of the instruction set go by; the rate of the time-stamp counter.

May be touched: files below /sys and /proc are read. ``cpuid`` maps one page of machine code of its own into the memopt
process. Nothing is written, and the target process is not touched.

- ``description``: ``CacheLevel`` and ``Machine``, their TOML form, the vector instruction sets that may be executed.
- ``detect``: the description of this machine, from sysfs, CPUID and the kernel.
- ``cpuid``: the CPUID and XGETBV instructions, callable from Python.
- ``tsc``: the rate of the time-stamp counter.

Tested by: ``tests/unit/memopt/machine``, a file for each module; ``cpuid`` by ``test_detect``.
"""
