"""Code of a contraction: packing, micro-kernel, tile loops.

In: ``Region``, ``Plan``, emitter. Out: instruction objects. May be touched: as ``vector``, plus tile loops.

Modules: ``contraction_kernel``, ``micro_kernel``, ``packing_code``, ``ragged``, ``tile_loops``.
"""
