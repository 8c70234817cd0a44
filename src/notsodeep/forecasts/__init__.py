"""What will the solver do? Equilibria, steps and gradients of a model before a network exists, or measured on one."""

from notsodeep.forecasts.forecast import forecast
from notsodeep.forecasts.phase_diagram import PhaseDiagram, phase_diagram
from notsodeep.forecasts.result import Forecast, GradientForecast

__all__ = ["Forecast", "GradientForecast", "PhaseDiagram", "forecast", "phase_diagram"]
