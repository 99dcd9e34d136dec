"""Compiled kernels are kept by what they are compiled from, whoever compiles at the same time."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import memopt.traces.core
from memopt.traces.core.compiler import Kept

_WHOLE = """
import sys
import numpy
from kept.compiler import kernel
from kept.part import part

@kernel()
def whole(numbers):
    return part(numbers) + numbers.itemsize

made = numpy.arange(10, dtype=sys.argv[1])
assert whole(made) == 45 + made.itemsize + int(sys.argv[2]), whole(made)
"""
_PART = """
from kept.compiler import kernel

@kernel()
def part(numbers):
    total = 0
    for number in numbers:
        total += number
    return total
"""
_KEYS = 40


def _copy(folder: Path) -> tuple[Path, dict[str, str]]:
    """A package of other kernels, ``kept``, and the environment in which it is found."""
    package = folder / "kept"
    package.mkdir()
    source = Path(memopt.traces.core.__file__).parent
    for name in ("__init__.py", "sources.py", "compiler.py"):
        text = (source / name).read_text().replace("memopt.traces.core", "kept")
        (package / name).write_text(text.replace("parents[1]", "parent"))
    (package / "part.py").write_text(_PART)
    (package / "whole.py").write_text(_WHOLE)
    return package, os.environ | {"PYTHONPATH": str(folder)}


def _use(kind: str, more: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "kept.whole", kind, str(more)], env=environment,
                            stderr=subprocess.PIPE)


def test_what_another_version_has_left_is_no_hindrance(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path), "f", "stamp")
    kept.save((1,), (2,))
    (index,) = tmp_path.glob("*.nbi")
    index.write_bytes(pickle.dumps(numba.__version__) + b"cnowhere\nNothing\n.")
    assert kept.load((1,)) is None
    kept.save((1,), (3,))
    assert kept.load((1,)) == (3,)


def _save(folder: str, process: int) -> None:
    for key in range(_KEYS):
        Kept(folder, "f", "stamp").save((process, key), (process, key))


def test_processes_that_compile_at_once_keep_their_own(tmp_path: Path) -> None:
    processes = [multiprocessing.get_context("fork").Process(target=_save, args=(str(tmp_path), n)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    kept = Kept(str(tmp_path), "f", "stamp")
    keys = [(n, key) for n in range(4) for key in range(_KEYS)]
    assert [kept.load(key) for key in keys] == keys
    assert Kept(str(tmp_path), "f", "another stamp").load(keys[0]) is None


def test_a_change_to_what_a_kernel_calls_compiles_it_again(tmp_path: Path) -> None:
    package, environment = _copy(tmp_path)
    for more in (0, 3):
        (package / "part.py").write_text(_PART.replace("total = 0", f"total = {more}"))
        process = _use("int64", more, environment)
        error = process.communicate()[1]
        assert process.returncode == 0, error.decode()


def test_kernels_work_where_nothing_can_be_kept(tmp_path: Path) -> None:
    package, environment = _copy(tmp_path)
    (package / "__pycache__").write_text("no folder")
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    process = _use("int64", 0, environment | {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere)})
    error = process.communicate()[1]
    assert process.returncode == 0, error.decode()


def _left(folder: Path) -> bool:
    """Whether compiled code is kept in ``folder``."""
    return bool(list(folder.rglob("*.nbi")))


@pytest.mark.parametrize(("mode", "kept"), [(0o700, True), (0o777, False), (0o1777, True)])
def test_nothing_is_kept_where_others_can_write(tmp_path: Path, mode: int, kept: bool) -> None:
    """Nor is anything loaded from there. numba makes a folder inside, which nobody can exchange in a sticky one."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    _, environment = _copy(tmp_path)
    process = _use("i4", 0, environment | {"NUMBA_CACHE_DIR": str(folder)})
    assert process.wait() == 0, process.communicate()
    assert _left(folder) == kept


def test_no_configuration_is_read_from_the_working_directory(tmp_path: Path) -> None:
    """Whoever owns that folder could name another one, from which compiled code is loaded."""
    _, environment = _copy(tmp_path)
    (tmp_path / "yaml.py").write_text(f"def safe_load(file):\n    return {{'cache_dir': {str(tmp_path)!r}}}\n")
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path}\n")
    words = "import {}; from numba.core import config; config.reload_config(); print(config.CACHE_DIR)"
    printed = [subprocess.run([sys.executable, "-c", words.format(module)], env=environment, cwd=tmp_path, check=True,
                              capture_output=True, text=True).stdout for module in ("numba", "kept.compiler")]
    assert printed == [f"{tmp_path}\n", "\n"]
