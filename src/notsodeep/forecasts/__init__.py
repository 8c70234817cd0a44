"""What will the solver do? Equilibria, steps and gradients of a model before a network exists, or measured on one."""

from notsodeep.forecasts.forecast import forecast, phase_diagram
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast, PhaseDiagram

__all__ = ["Forecast", "GradientForecast", "PhaseDiagram", "forecast", "phase_diagram"]
