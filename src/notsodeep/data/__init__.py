"""Data: mixtures and spheres to draw from, the statistics the theory needs, real data by name."""

from notsodeep.data.covariances import Covariance, Dense, Diagonal, Factor, Isotropic
from notsodeep.data.datasets import NAMES, Dataset, as_images, load, parse_spec
from notsodeep.data.mixtures import GaussianMixture, UnitSphere
from notsodeep.data.patches import PatchMoments
from notsodeep.data.preprocessing import SCALES, Preprocessing
from notsodeep.data.row_inspection import RowInspection, inspect_rows
from notsodeep.data.statistics import ClassStatistics, MixtureStatistics, StatisticsAccumulator
from notsodeep.data.table_files import Table, open_table, read_table

__all__ = [
    "NAMES",
    "SCALES",
    "ClassStatistics",
    "Covariance",
    "Dataset",
    "Dense",
    "Diagonal",
    "Factor",
    "GaussianMixture",
    "Isotropic",
    "MixtureStatistics",
    "PatchMoments",
    "Preprocessing",
    "RowInspection",
    "StatisticsAccumulator",
    "Table",
    "UnitSphere",
    "as_images",
    "inspect_rows",
    "load",
    "open_table",
    "parse_spec",
    "read_table",
]
