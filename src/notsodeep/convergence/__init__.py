"""Will gradient descent train this DEQ to zero loss, at what rate, and what would guarantee it?"""

from notsodeep.extras import needed

needed("torch", "A certificate of convergence (notsodeep.convergence)")

from notsodeep.convergence.certify import Certificate, certificate
from notsodeep.convergence.descent import Descent, RecordedStep, gradient_descent
from notsodeep.convergence.network import PaperNetwork, TangentSpectrum, paper_model, tangent_spectrum
from notsodeep.convergence.population import PopulationGram, population_gram

__all__ = [
    "Certificate",
    "Descent",
    "PaperNetwork",
    "PopulationGram",
    "RecordedStep",
    "TangentSpectrum",
    "certificate",
    "gradient_descent",
    "paper_model",
    "population_gram",
    "tangent_spectrum",
]
