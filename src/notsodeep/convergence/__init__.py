"""Will gradient descent train this DEQ to zero loss, at what rate, and what would guarantee it?"""

from notsodeep.convergence.certify import Certificate, certificate
from notsodeep.convergence.network import PaperNetwork, paper_model
from notsodeep.convergence.population import PopulationGram, population_gram
from notsodeep.convergence.rates import Concentration, concentration
from notsodeep.convergence.tangent import TangentSpectrum, tangent_spectrum

__all__ = [
    "Certificate",
    "Concentration",
    "PaperNetwork",
    "PopulationGram",
    "TangentSpectrum",
    "certificate",
    "concentration",
    "paper_model",
    "population_gram",
    "tangent_spectrum",
]
