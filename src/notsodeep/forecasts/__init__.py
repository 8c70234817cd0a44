"""What will the solver do? Equilibria, steps and gradients of a model before a network exists, or measured on one."""

from notsodeep.forecasts.forecast import forecast
from notsodeep.forecasts.forecast_result import Forecast, GradientForecast
from notsodeep.forecasts.phase_diagram import PhaseDiagram, phase_diagram

__all__ = ["Forecast", "GradientForecast", "PhaseDiagram", "forecast", "phase_diagram"]
