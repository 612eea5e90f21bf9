"""What happens inside a trained model: one module per analysis, run by ``python -m respath.measure.analyses``."""
