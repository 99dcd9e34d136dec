"""Makes the snapshots in tests/snapshots anew: ``python -m tests.support.snapshots [NAME]...``.

Each is a nest of tests/programs/kept_nests.c, as memopt met it in a run. A fault that is found in a nest is mended, and
its nest goes there, too: as a case of that program, and as a snapshot.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "snapshots"
SOURCE = ROOT / "tests" / "programs" / "kept_nests.c"
REPETITIONS = 10_000_000  # the program is ended once the snapshot is there


@dataclass(frozen=True, slots=True)
class Kept:
    """``case``: of the program; ``function``: with the nest."""

    name: str
    case: str
    function: str
    flags: tuple[str, ...]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.snapshot"


KEPT = (
    Kept("product", "product", "product", ("-O2",)),
    Kept("product-vectors", "product", "product", ("-O3",)),
    Kept("triangle", "triangle", "triangle", ("-O2", "-no-pie")),
    Kept("stencil", "stencil", "stencil", ("-O2",)),
    Kept("payloads", "payloads", "payloads", ("-O2", "-fno-omit-frame-pointer")),
    Kept("branch", "branch", "branch", ("-O2",)),
    Kept("convert", "convert", "convert", ("-O3",)),
)


def make(kept: Kept) -> None:
    """Build the program, run it until the nest is kept, and end it. Raises ``CalledProcessError``, RuntimeError."""
    kept.path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "kept_nests"
        subprocess.run(["gcc", *kept.flags, "-o", program, SOURCE], check=True)
        command = [sys.executable, "-m", "memopt", "snapshot", "-o", kept.path, "--loop", kept.function, "--", program,
                   kept.case, str(REPETITIONS)]
        with subprocess.Popen(command, cwd=ROOT) as running:
            until = time.monotonic() + PATIENCE
            while running.poll() is None and not kept.path.exists() and time.monotonic() < until:
                time.sleep(0.05)
            running.terminate()
    if not kept.path.exists():
        raise RuntimeError(f"no snapshot of {kept.name}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in KEPT:
        if not sys.argv[1:] or each.name in sys.argv[1:]:
            make(each)
