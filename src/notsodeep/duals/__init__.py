"""Expectations of products of activations over Gaussian pairs: one engine for all models (docs/architecture.md)."""
