"""Where samples come from, as the command line says it: drawn from a mixture or a sphere, a data set, a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notsodeep.interfaces.cli.common import read_rows

if TYPE_CHECKING:
    from notsodeep.data import GaussianMixture, MixtureStatistics, UnitSphere

DATA_HELP = (
    "mixture (Gaussian classes as in the papers: --n, --p, --classes, --mean, --gap), sphere (unit vectors: --n, --p), "
    "digits, mnist:6,8, …, or rows.npy, rows.csv with samples in rows."
)
N_HELP = "Number of samples; of a file the first ones."
P_HELP = "Dimension of mixture and sphere; other data have their own."
CLASSES_HELP = "Classes of the mixture."
MEAN_HELP = "Length of the class means of the mixture."
GAP_HELP = "Covariance gap of the mixture: class a has C = (1 + gap a/√p) I."
SEED_HELP = "Of the draw; a file is read from its beginning."

MIXTURE, SPHERE = "mixture", "sphere"
SMALLEST = 20


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows, and what is known about them.

    Attributes:
        rows: samples in rows (n, p).
        labels: their classes, where the law has some.
        law: what they were drawn from, where it is known.
        tau0: the norm of a typical row, docs/theory.md (4.2).
    """

    rows: Any
    labels: Any
    law: GaussianMixture | UnitSphere | None
    tau0: float

    @property
    def statistics(self) -> MixtureStatistics | None:
        """Those of the classes, from the law; a sphere in high dimension is one isotropic class."""
        import numpy as np

        from notsodeep.data import GaussianMixture, MixtureStatistics

        if self.law is None:
            return None
        law = self.law
        mixture = law if isinstance(law, GaussianMixture) else GaussianMixture(np.zeros((1, law.p)), 1.0)
        return MixtureStatistics.of(mixture, self.rows, self.labels)


@dataclass(frozen=True)
class Source:
    """What --data and the options beside it say."""

    data: str
    n: int
    p: int
    classes: int
    mean: float
    gap: float
    seed: int
    data_dir: Path | None

    @property
    def is_drawn(self) -> bool:
        """Whether samples are drawn from a law that is known."""
        return self.data in (MIXTURE, SPHERE)

    def samples(self) -> Samples:
        """Draw or read them."""
        import numpy as np

        from notsodeep.data import GaussianMixture, MixtureStatistics, UnitSphere

        if self.data == SPHERE:
            sphere = UnitSphere(self.p)
            return Samples(sphere.sample(self.n, self.seed), np.zeros(self.n, dtype=np.intp), sphere, 1.0)
        if self.data == MIXTURE:
            mixture = GaussianMixture.paper(self.p, classes=self.classes, mean=self.mean, gap=self.gap)
            rows, labels = mixture.sample(self.n, self.seed)
            return Samples(rows, labels, mixture, MixtureStatistics.of(mixture, rows, labels).tau0)
        rows = read_rows(self.data, self.n, self.data_dir, self.seed)
        return Samples(rows, None, None, float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows)))))

    def smaller(self, total: int) -> list[Source]:
        """The same at an eighth, a quarter, a half and all of `total` samples; drawn ones keep their p/n."""
        sizes = sorted({max(SMALLEST, round(share * total)) for share in (0.125, 0.25, 0.5, 1.0)})
        if not self.is_drawn:
            return [replace(self, n=n) for n in sizes]
        return [replace(self, n=n, p=max(SMALLEST, round(self.p * n / total))) for n in sizes]
