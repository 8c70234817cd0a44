"""Kernels computed block by block, on disk and on clusters; dask and zarr are imported when first needed."""

from notsodeep.scale.sample_sources import open_rows
from notsodeep.scale.stored import StoredKernel, open_kernel

__all__ = ["StoredKernel", "open_kernel", "open_rows"]
