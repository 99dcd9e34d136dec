"""Which folders nobody else can write to; and that nothing is loaded from those where others can."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from memopt import private_files
from memopt.private_files import cache_folder, temporary_files_in, trusted

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is trusted, in a folder of the test's."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(0o700)
    assert trusted(str(tmp_path))
    return tmp_path


def test_a_folder_of_the_users_own_is_kept(home: Path) -> None:
    folder = cache_folder("x")
    assert folder == str(home / ".cache" / "memopt" / "x")
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    assert cache_folder("x") == folder
    with temporary_files_in("x") as used:
        assert used == folder == tempfile.gettempdir()
    assert tempfile.gettempdir() != folder
    assert Path(folder).is_dir()


def test_the_folder_that_the_user_has_named_is_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    assert cache_folder("x") == str(home / "elsewhere" / "memopt" / "x")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # against the specification: whatever folder memopt is started in
    assert cache_folder("x") == str(home / ".cache" / "memopt" / "x")


def open_to_others(home: Path) -> None:
    (home / ".cache" / "memopt" / "x").mkdir(parents=True)
    (home / ".cache" / "memopt").chmod(0o700)
    (home / ".cache" / "memopt" / "x").chmod(0o770)


def open_above(home: Path) -> None:
    (home / ".cache").mkdir()
    (home / ".cache").chmod(0o777)


def a_link(home: Path) -> None:
    (home / "theirs").mkdir(mode=0o700)
    (home / "theirs").chmod(0o755)
    (home / ".cache" / "memopt").mkdir(parents=True, mode=0o700)
    (home / ".cache" / "memopt" / "x").symlink_to(home / "theirs")


def a_file(home: Path) -> None:
    (home / ".cache").mkdir()
    (home / ".cache" / "memopt").touch()


def given_away(home: Path) -> None:
    (home / ".cache" / "memopt" / "x").mkdir(parents=True, mode=0o700)
    (home / ".cache" / "memopt").chmod(0o700)
    os.chown(home / ".cache" / "memopt" / "x", 1234, 1234)


def given_away_above(home: Path) -> None:
    (home / ".cache").mkdir(mode=0o755)
    os.chown(home / ".cache", 1234, 1234)


@pytest.mark.parametrize("spoil", [open_to_others, open_above, a_link, a_file,
                                   pytest.param(given_away, marks=root_only),
                                   pytest.param(given_away_above, marks=root_only)])
def test_a_folder_that_others_can_write_to_is_not_used(home: Path, spoil: object) -> None:
    assert callable(spoil)
    spoil(home)
    assert cache_folder("x") is None
    with temporary_files_in("x") as used:
        assert not used.startswith(str(home / ".cache"))
        assert Path(used).stat().st_mode & 0o777 == 0o700
        assert tempfile.gettempdir() == used
    assert not Path(used).exists()


def test_a_sticky_folder_on_the_way_is_no_danger(home: Path) -> None:
    (home / "all").mkdir()
    (home / "all").chmod(0o1777)
    (home / "all" / "mine").mkdir(mode=0o700)
    assert trusted(str(home / "all" / "mine"))
    assert not trusted(str(home / "all"))
    (home / "all").chmod(0o777)
    assert not trusted(str(home / "all" / "mine"))
    assert not trusted(str(home / "nowhere"))


class Planted:
    """What runs when it is unpickled."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.told),)


def load_semantics(**environment: str) -> subprocess.CompletedProcess[str]:
    code = "import memopt.x86.semantics as s, tempfile; print(s.pyvex.__name__, tempfile.gettempdir())"
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True,
                          text=True)


@pytest.mark.parametrize("home_is_open", [False, True])
def test_what_was_planted_for_pyvex_is_not_loaded(home: Path, home_is_open: bool) -> None:
    """It loads a pickle by a name that everybody knows, from the folder for temporary files."""
    import getpass
    import hashlib

    from pyvex.vex_ffi import ffi_str

    shared, told = home / "tmp", home / "told"
    shared.mkdir()
    shared.chmod(0o1777)
    name = f"pyvex_ffi_parser_cache.{getpass.getuser()}.{hashlib.md5(ffi_str.encode()).hexdigest()}"
    (shared / name).write_bytes(pickle.dumps(Planted(told)))
    with pytest.raises(TypeError):
        pickle.loads((shared / name).read_bytes())["_declarations"]
    told.rmdir()  # so it would have run
    used = str(shared) if home_is_open else str(home)
    for _ in range(2):  # the second one finds what the first has kept
        done = load_semantics(TMPDIR=str(shared), HOME=used)
        assert done.stdout == f"pyvex {shared}\n", done.stderr
        assert not told.exists()
    kept = list((home / ".cache" / "memopt").glob("pyvex-*/pyvex_ffi_parser_cache.*"))
    assert len(kept) == (not home_is_open)
    assert [p.name for p in shared.iterdir() if p.name != ".cache"] == [name]


def test_a_folder_of_this_process_is_ours() -> None:
    assert private_files._ours("/")
    assert not private_files._ours("/dev/null")
