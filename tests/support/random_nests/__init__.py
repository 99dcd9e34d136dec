"""Random affine nests in C, run natively and with their loops replaced: ``python -m tests.support.random_nests --help``."""
