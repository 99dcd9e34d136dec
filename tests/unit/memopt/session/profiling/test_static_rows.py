"""Samples as rows, wherever they were taken."""

from __future__ import annotations

from pathlib import Path

from memopt.session.profiling.images import Located
from memopt.session.profiling.static_rows import write_samples
from memopt.store.schema import create


def test_addresses_of_the_kernel_are_negative(tmp_path: Path) -> None:
    connection = create(str(tmp_path / "p.db"))
    samples = {Located(1, None, 0xffffffffff600400): (2, 0.5), Located(1, None, 4096): (1, 0.25)}
    write_samples(connection, (), "", samples)
    rows = connection.execute("SELECT image, address, count, seconds FROM sample ORDER BY address").fetchall()
    assert rows == [(None, 0xffffffffff600400 - (1 << 64), 2, 0.5), (None, 4096, 1, 0.25)]
