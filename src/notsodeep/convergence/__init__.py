"""Will gradient descent train this DEQ to zero loss, at what rate, and what would guarantee it?"""

from notsodeep.extras import needed

needed("torch", "A certificate of convergence (notsodeep.convergence)")

from notsodeep.convergence.certify import Certificate, certificate
from notsodeep.convergence.network import PaperNetwork, TangentSpectrum, paper_model, tangent_spectrum
from notsodeep.convergence.population import PopulationGram, population_gram

__all__ = [
    "Certificate",
    "PaperNetwork",
    "PopulationGram",
    "TangentSpectrum",
    "certificate",
    "paper_model",
    "population_gram",
    "tangent_spectrum",
]
