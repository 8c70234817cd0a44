"""How many steps does it need? The depth curve of a model or a trained network, and the verdict drawn from it."""

from notsodeep.verdicts.depth_curve import DepthCurve, depth_curve
from notsodeep.verdicts.verdict import OrdinaryNetwork, Verdict, verdict

__all__ = ["DepthCurve", "OrdinaryNetwork", "Verdict", "depth_curve", "verdict"]
