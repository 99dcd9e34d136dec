from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]

# The command with a driver of its own: ``body`` is the body of driver.run and driver.attach.
FAKE = """
import sys, types
sys.path.insert(0, {root!r})
fake = types.ModuleType("memopt.session.driver")
source = '''
def start(arguments):
    return None
def run(options, target=None):
{body}
def attach(options):
{body}
'''
exec(compile(source, "driver", "exec"), fake.__dict__)
sys.modules["memopt.session.driver"] = fake
from memopt.cli import main
main()
"""
SHOW = "    print(options, flush=True); return 7"


def memopt(*arguments: str, body: str = SHOW, **options: object) -> subprocess.CompletedProcess[str]:
    code = FAKE.format(root=str(ROOT), body=body)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                          **options)  # type: ignore[call-overload, no-any-return]


def shown(*arguments: str) -> str:
    result = memopt(*arguments)
    assert result.returncode == 7
    assert result.stderr == ""
    return str(result.stdout)


@pytest.mark.parametrize("arguments", [("exec", "--", "prog", "--fp", "-x", "--", ""),
                                       ("exec", "prog", "--fp", "-x", "--", "")])
def test_program_arguments_are_not_touched(arguments: tuple[str, ...]) -> None:
    assert "arguments=('prog', '--fp', '-x', '--', '')" in shown(*arguments)


def test_defaults() -> None:
    assert shown("exec", "prog") == (
        "Options(arguments=('prog',), pid=None, undo=False, fp='exact', dry_run=False, quiet=False, verbose=False, "
        "shadow=True, isa=None, print_after=(), snapshot=None, cache=True, follow=False, report=None, json=None, "
        "profile=None, mode='sampled', elide=True, reuse=False, trace=None, unhook=5000, rehook=None, overhead=5.0)\n")


def test_every_option(tmp_path: Path) -> None:
    text = shown("exec", "--fp", "fast", "--dry-run", "--quiet", "--report", f"{tmp_path}/r", "--json", f"{tmp_path}/j",
                 "--verbose", "--print-after=tiling", "--print-after", "plan", "--no-shadow", "--no-cache",
                 "--isa", "avx2", "prog")
    for part in ("fp='fast'", "dry_run=True", "quiet=True", f"report='{tmp_path}/r'", f"json='{tmp_path}/j'",
                 "verbose=True", "print_after=('tiling', 'plan')", "shadow=False", "cache=False",
                 "isa=<Isa.AVX2: 'avx2'>"):
        assert part in text


def test_snapshots(tmp_path: Path) -> None:
    file = f"{tmp_path}/f"
    assert f"snapshot=Keeping(path='{file}', mismatch=True, nest='', limit=67108864)" in shown(
        "exec", "--on-mismatch", file, "prog")
    text = shown("snapshot", "-o", file, "--loop", "multiply", "--limit", "2", "--", "prog", "-o")
    assert "arguments=('prog', '-o')" in text
    assert "dry_run=True" in text
    assert f"snapshot=Keeping(path='{file}', mismatch=False, nest='multiply', limit=2097152)" in text


def test_a_replay_of_no_snapshot_is_one_line(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing", "No such file or directory"), (tmp_path, "it is no regular file")):
        result = memopt("replay", str(path))
        assert result.returncode == 1
        assert result.stderr == f"memopt: {path}: {why}\n"


def test_attach() -> None:
    assert "arguments=(), pid=123, undo=True" in shown("attach", "123", "--undo")


@pytest.mark.parametrize("arguments", [
    ("exec",), ("exec", "--no-such", "x"), ("exec", "--fp", "quick", "x"), ("exec", "--isa", "mmx", "x"), ("no-such",),
    ("attach",), ("attach", "x"), ("attach", "0"), ("attach", "1", "2"), ("--no-such",),
    ("exec", "--json", "/no/such/directory/file", "x"), ("exec", "--report", "/etc/passwd/x", "x"),
    ("exec", "--json", "/", "x"), ("exec", "--json"), ("snapshot", "x"), ("snapshot", "-o", "/", "x"),
    ("snapshot", "-o", "/no/such/directory/file", "x"), ("snapshot", "-o", "f", "--limit", "0", "x"), ("replay",),
    ("exec", "--on-mismatch", "f", "--no-shadow", "x"), ("replay", "--plan", "/no/such/file", "x"),
])
def test_usage_errors_are_one_line(arguments: tuple[str, ...]) -> None:
    result = memopt(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("memopt: ")
    assert result.stderr.count("\n") == 1


def test_help_and_version() -> None:
    assert memopt("--version").stdout.startswith("memopt ")
    for arguments in (("--help",), ("exec", "--help"), ("attach", "-h")):
        result = memopt(*arguments)
        assert result.returncode == 0
        assert "Usage: memopt" in result.stdout
    assert "--print-after" in memopt("exec", "--help").stdout


def test_help_into_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run([sys.executable, "-m", "memopt", "--help"], cwd=ROOT, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert result.stderr == b""


def test_report_to_a_pipe_means_the_pipe_of_now() -> None:
    body = "    open(options.json, 'w').write('x' + options.json[:14]); return 0"
    result = memopt("exec", "--json", "/dev/stdout", "prog", body=body)
    assert result.stdout == "x/proc/self/fd/"


def test_death_by_signal_is_passed_up() -> None:
    assert memopt("exec", "prog", body="    return -15").returncode == -signal.SIGTERM


LAUNCH = """
    import os
    from runtime.launch.identify import identify
    from runtime.launch.launch import launch
    target = launch(identify(options.arguments[0], "/bin"), options.arguments)
"""


@pytest.mark.parametrize("before", ["", LAUNCH])
@pytest.mark.parametrize("error", ["1 / 0", "raise MemoryError", "raise ValueError('two\\\\nlines')",
                                   "def f(): f()\n    f()", "open('/no/such')"])
def test_internal_error_leaves_the_program_its_own_way(before: str, error: str) -> None:
    result = memopt("exec", "sh", "-c", "read line; echo got $line; exit 5", input="a\n", body=f"{before}\n    {error}")
    assert result.returncode == 5
    assert result.stdout == "got a\n"
    assert result.stderr.startswith("memopt: internal error in ")
    assert result.stderr.endswith("; the program runs on natively\n")
    assert result.stderr.count("\n") == 1


def test_internal_error_names_the_stage() -> None:
    assert "error in driver: ZeroDivisionError" in memopt("exec", "true", body="    1 / 0").stderr


def test_internal_error_when_the_program_cannot_run() -> None:
    result = memopt("exec", "no-such-program", body="    1 / 0")
    assert result.returncode == 127
    assert result.stderr.count("\n") == 2


def test_internal_error_of_attach() -> None:
    result = memopt("attach", "1", body="    1 / 0")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1


def test_program_that_cannot_run() -> None:
    body = "    from runtime.launch.identify import identify\n    identify(options.arguments[0], '/bin')"
    result = memopt("exec", "no-such-program", body=body)
    assert result.returncode == 127
    assert result.stderr.startswith("memopt: no-such-program: ")


def test_closed_standard_error_is_no_trouble() -> None:
    code = FAKE.format(root=str(ROOT), body="    1 / 0")
    assert subprocess.run(["bash", "-c", 'exec "$@" 2>&-', "-", sys.executable, "-c", code, "exec", "sh", "-c",
                           "exit 6"]).returncode == 6


def test_import_is_light() -> None:
    code = "import sys, memopt.cli; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.split())
    assert "memopt.cli" in loaded
    assert not loaded & {"numpy", "islpy", "lief", "capstone", "keystone", "pyvex", "unicorn", "symbolic", "rich",
                         "click", "memopt.session.driver"}


def test_the_program_is_started_before_anything_slow_is_imported() -> None:
    code = "import sys, memopt.cli, memopt.session.driver; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True,
                                text=True).stdout.split())
    assert {"memopt.session.driver", "runtime.launch.launch"} <= loaded
    assert not loaded & {"dataclasses", "inspect", "typing", "re", "memopt.options", "runtime.launch.jobcontrol"}
