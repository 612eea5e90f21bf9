"""Training: one run from its spec and its token manifest to final weights and ``train.json``, resumable to the bit."""
