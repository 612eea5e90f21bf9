"""Evaluation of trained runs: validation loss per domain, and lm-eval's tasks on local data."""
