"""Figures that only experiments and the explorer draw; the others are in `notsodeep.figures`."""
