from __future__ import annotations

import pytest

from tests.support.header import LIMIT, Header


@pytest.fixture(scope="module")
def _one_header() -> Header:
    return Header()


@pytest.fixture
def header(_one_header: Header) -> Header:
    """A header whose frame is free; one for all tests of a module, since to make it takes longer than to enter it."""
    _one_header.limit, _one_header.busy = LIMIT, 0
    return _one_header
