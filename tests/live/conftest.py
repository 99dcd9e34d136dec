from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Build
from tests.support.told import native_output


@pytest.fixture(scope="session")
def program(build: Build) -> Path:
    """A program with a hot nest that goes on until it is told to end."""
    return build("until_told.c")


@pytest.fixture(scope="session")
def expected(program: Path) -> str:
    """What it prints natively."""
    return native_output(program)
