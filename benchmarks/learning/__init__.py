"""Predicted learning curves beside what was really trained; `learning_curves.py` runs and publishes the parts."""
