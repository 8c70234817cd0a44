"""Do I need this deep equilibrium model? One question, answered from what the other rooms measure."""

from notsodeep.extras import needed

needed("torch", "A verdict (notsodeep.verdicts)")

from notsodeep.verdicts.findings import Closeness, Gap, Speed, TrainedState
from notsodeep.verdicts.verdict import Verdict, verdict

__all__ = ["Closeness", "Gap", "Speed", "TrainedState", "Verdict", "verdict"]
