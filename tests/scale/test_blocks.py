"""How a matrix is cut into blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from notsodeep.scale.blocks import Grid


@given(n=st.integers(1, 50), m=st.integers(1, 50), block=st.integers(1, 60), symmetric=st.booleans())
def test_a_grid_covers_every_entry_once(n: int, m: int, block: int, symmetric: bool) -> None:
    grid = Grid(n, n if symmetric else m, block, symmetric)
    times = np.zeros((grid.rows, grid.columns), dtype=int)
    for cell in grid.cells():
        rows, columns = grid.slices(cell)
        times[rows, columns] += 1
        assert all(0 < part.stop - part.start <= block for part in (rows, columns))
        if grid.mirrored(cell):
            times[columns, rows] += 1
    assert np.all(times == 1)
    assert len(list(grid.cells())) == grid.count
