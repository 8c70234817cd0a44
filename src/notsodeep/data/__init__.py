"""Data: mixtures and spheres to draw from, the statistics the theory needs, real data by name."""

from notsodeep.data.covariances import Covariance, Dense, Diagonal, Factor, Isotropic
from notsodeep.data.datasets import NAMES, Dataset, as_images, load, parse_spec
from notsodeep.data.mixtures import GaussianMixture, UnitSphere
from notsodeep.data.preprocessing import Preprocessing
from notsodeep.data.statistics import ClassStatistics, MixtureStatistics, StatisticsAccumulator

__all__ = [
    "NAMES",
    "ClassStatistics",
    "Covariance",
    "Dataset",
    "Dense",
    "Diagonal",
    "Factor",
    "GaussianMixture",
    "Isotropic",
    "MixtureStatistics",
    "Preprocessing",
    "StatisticsAccumulator",
    "UnitSphere",
    "as_images",
    "load",
    "parse_spec",
]
