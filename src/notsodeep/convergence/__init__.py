"""Will gradient descent train this DEQ to zero loss, at what rate, and what would guarantee it?"""

from notsodeep.extras import needed

needed("torch", "A certificate of convergence (notsodeep.convergence)")

from notsodeep.convergence.certify import Certificate, certificate
from notsodeep.convergence.concentration_rates import Concentration, concentration
from notsodeep.convergence.descent import Descent, DescentSettings, RecordedStep, gradient_descent
from notsodeep.convergence.network import PaperNetwork, paper_model
from notsodeep.convergence.population import PopulationGram, population_gram
from notsodeep.convergence.tangent import TangentSpectrum, tangent_spectrum

__all__ = [
    "Certificate",
    "Concentration",
    "Descent",
    "DescentSettings",
    "PaperNetwork",
    "PopulationGram",
    "RecordedStep",
    "TangentSpectrum",
    "certificate",
    "concentration",
    "gradient_descent",
    "paper_model",
    "population_gram",
    "tangent_spectrum",
]
