"""Data: mixtures and spheres to draw from, the statistics the theory needs, real data by name."""

from notsodeep.data.datasets import NAMES, as_images, load, parse_spec
from notsodeep.data.mixtures import Covariance, GaussianMixture, UnitSphere
from notsodeep.data.preprocessing import SCALES, Preprocessing, RowInspection, inspect_rows
from notsodeep.data.statistics import ClassStatistics, MixtureStatistics
from notsodeep.data.table_files import Samples, open_table

__all__ = [
    "NAMES",
    "SCALES",
    "ClassStatistics",
    "Covariance",
    "GaussianMixture",
    "MixtureStatistics",
    "Preprocessing",
    "RowInspection",
    "Samples",
    "UnitSphere",
    "as_images",
    "inspect_rows",
    "load",
    "open_table",
    "parse_spec",
]
