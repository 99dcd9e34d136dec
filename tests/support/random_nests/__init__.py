"""Random affine nests in C, run natively and replaced: ``python -m tests.support.random_nests --help``."""
