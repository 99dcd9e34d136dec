"""Drawings for a page."""

from __future__ import annotations

import random
import re

import pytest

from memopt.report.figures import curves, dots


@pytest.mark.parametrize("seed", range(20))
def test_every_height_has_its_dot_and_nothing_else_has(seed: int) -> None:
    draw = random.Random(seed)
    heights = [draw.choice((0, 8, 64, 4096)) * draw.randrange(50) for _ in range(draw.choice((1, 2, 60, 3000)))]
    heights[draw.randrange(len(heights))] = 0
    path = re.search(r"d='([^']*)'", dots(heights))
    assert path is not None
    drawn = {(int(x), int(y) + step) for x, y, length in re.findall(r"M(\d+) (\d+)v(\d+)", path[1])
             for step in range(int(length))}
    last, highest = max(1, len(heights) - 1), max(1, *heights)
    assert drawn == {(round(62 + 350 * at / last), round(166 - 158 * height / highest))
                     for at, height in enumerate(heights)}


def test_curves_rise_and_stay_inside() -> None:
    text = curves([(1, 64, 4096), (2, 128, 4096), (1000, 1 << 20, 1 << 21)], [("L<1", 32768), ("L2", 1 << 22)])
    lines = re.findall(r"points='([^']*)'", text)
    assert len(lines) == 2
    for line in lines:
        x, y = zip(*((float(a), float(b)) for a, b in (point.split(",") for point in line.split())), strict=True)
        assert list(x) == sorted(x)
        assert list(y) == sorted(y, reverse=True)
        assert x[0] == 62
        assert x[-1] == 412
        assert min(y) >= 8
        assert max(y) <= 166
    assert text.count("class=cache") == 2
    assert "L&lt;1" in text
    assert "64 B" in text
    assert "2 MiB" in text


def test_a_curve_that_never_rises() -> None:
    assert "polyline" in curves([(1, 64, 64), (2, 64, 64)], [])
