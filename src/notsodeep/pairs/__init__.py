"""Pairs of samples through one activation, with or without feedback: F and F' for tiles of pairs."""
