"""``make demo``: runs one program natively, then under memopt, and prints both times and whether the outputs agree."""

from __future__ import annotations

import subprocess
import sys
import time

import click

from bench.measure.execution import memopt_command


def _run(title: str, command: list[str]) -> tuple[float, tuple[bytes, int]]:
    """Runs ``command`` and shows its output. Returns the wall time, and the pair of output and exit code."""
    click.echo(f"\n$ {title}")
    start = time.monotonic()
    completed = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    seconds = time.monotonic() - start
    click.echo(completed.stdout, nl=False)
    click.echo(f"[{seconds:.2f} s, exit code {completed.returncode}]")
    return seconds, (completed.stdout, completed.returncode)


def main(program: str, size: str) -> int:
    """Runs the demo. Returns 0 if both outputs agree byte for byte, else 1."""
    native_seconds, native = _run(f"{program} {size}", [program, size])
    memopt_seconds, improved = _run(f"memopt exec -- {program} {size}",
                                    [*memopt_command(), "exec", "--", program, size])
    same = native == improved
    click.echo(f"\nbefore {native_seconds:.2f} s, after {memopt_seconds:.2f} s: "
               f"{native_seconds / memopt_seconds:.1f} times as fast, output {'identical' if same else 'DIFFERENT'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
