"""Experiments with a GPU."""
