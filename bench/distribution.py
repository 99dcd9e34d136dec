"""``memopt profile --exact`` on programs of a Debian installation (xz, perl, sort, ...), compared with callgrind.

    python -m bench.distribution

Each program runs natively, profiled, and under callgrind. Output and exit code must be the same as natively, and the
executed instructions of the program's own text must differ from callgrind's count by 0.5 % at most. The input of the
programs is source text of Python's standard library. The exit code is 1 if a program fails.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from bench.measure import callgrind
from bench.measure.execution import ask, memopt_command, run

_PATIENCE_S = 600.0
_MOST_DIFFERENCE = 0.005
_TEXT_BYTES = 1 << 20
_SUM = "BEGIN { for (i = 0; i < 300000; i++) s[i % 97] += i; for (i in s) t += s[i]; print t }"
_QUERY = ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
          "SELECT sum(i % 13) FROM n")
_COMMANDS = (
    ("xz", "-6", "-c", "text"), ("gzip", "-9", "-c", "text"), ("bzip2", "-k", "-c", "text"), ("sort", "-r", "text"),
    ("awk", _SUM), ("perl", "-ne", "$n{$_}++ for split /\\W+/; END { print join ',', map { $n{$_} } sort keys %n }",
                    "text"),
    ("bash", "-c", "for ((i = 0; i < 20000; i++)); do ((s += i % 7)); done; echo $s; exit 7"),
    ("grep", "-c", "-E", "def +[a-z_]+[(]self", "text"), ("sed", "-E", "s/([a-z]+) ([a-z]+)/\\2 \\1/g", "text"),
    ("tar", "-cf", "-", "text"), ("find", "/usr/share/doc", "-name", "*.gz"), ("sha256sum", "text"), ("wc", "text"),
    ("diff", "text", "other"), ("od", "-x", "text"), ("factor", "1234567890123456789", "9007199254740993"),
    ("base64", "text"), ("bc", "-q", "sums"), ("sqlite3", ":memory:", _QUERY), ("ls", "-lR", "/usr/share/doc"),
    ("ls", "/no such folder"))


def main() -> int:
    """Prints the table. Returns 0 if every program is right, else 1."""
    if not callgrind.installed():
        sys.stderr.write("this benchmark compares counts with callgrind: install valgrind\n")
        return 1
    wrong = 0
    _say("| program | output, exit code | instructions of its text | by callgrind | difference |\n|" + " --- |" * 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_inputs(folder)
        os.chdir(folder)
        os.environ |= {"LC_ALL": "C", "PERL_HASH_SEED": "0"}
        for command in _COMMANDS:
            wrong += not _is_right(command, folder / "profile.db")
    return 1 if wrong else 0


def _is_right(command: tuple[str, ...], path: Path) -> bool:
    native = run(command, _PATIENCE_S)
    profiled = run([*memopt_command(), "profile", "--exact", "--quiet", "-o", str(path), "--", *command], _PATIENCE_S)
    same = profiled.same_result(native)
    rows = ask(path, "SELECT m.path, sum(e.instructions) AS sum FROM execution e JOIN image m ON m.id = e.image "
                     "WHERE m.path = (SELECT program FROM thread WHERE parent IS NULL LIMIT 1) GROUP BY 1")
    if not rows:
        _say(f"| {command[0]} | {'identical' if same else 'DIFFERENT'} | none | | |")
        return False
    program, ours = str(rows[0]["path"]), int(rows[0]["sum"])
    theirs = callgrind.instructions(command, _PATIENCE_S)[program]
    _say(f"| {command[0]} | {f'identical, {native.exit_code}' if same else 'DIFFERENT'} | {ours:,} | {theirs:,} | "
         f"{100 * (ours / max(theirs, 1) - 1):+.4f} % |")
    return same and abs(ours - theirs) <= _MOST_DIFFERENCE * theirs


def _write_inputs(folder: Path) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    text = b"".join(path.read_bytes() for path in sorted(library.glob("[a-t]*.py")))[:_TEXT_BYTES]
    (folder / "text").write_bytes(text)
    (folder / "other").write_bytes(text.replace(b"import os\n", b"import os, sys\n"))
    (folder / "sums").write_text("scale=400\n4*a(1)\nquit\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
