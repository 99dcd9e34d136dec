"""Which programs the benchmarks build: kernels, compilers, levels, ways to link."""
