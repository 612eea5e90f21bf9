"""respath: replicate papers on how information travels through deep Transformers."""

__version__ = "0.1.0"
