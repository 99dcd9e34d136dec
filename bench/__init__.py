"""The kernels, and the runs that make the published tables. Not installed: run from a checkout."""
