"""Plots of experiments; `notsodeep.figures` has the plots of the library."""
