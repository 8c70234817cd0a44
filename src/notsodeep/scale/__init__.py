"""Kernels block by block, beyond memory and beyond one machine; dask and zarr are loaded when they are needed."""

from notsodeep.scale.sample_sources import open_rows
from notsodeep.scale.stored import StoredKernel, open_kernel

__all__ = ["StoredKernel", "open_kernel", "open_rows"]
