"""Plots of experiments and of the explorer; `notsodeep.figures` has the plots of the library."""
