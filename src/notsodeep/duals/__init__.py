"""Expectations of products of activations over Gaussian pairs: one engine for all models (docs/contributing.md)."""
