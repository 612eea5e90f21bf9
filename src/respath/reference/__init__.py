"""Results of real runs that the repository keeps: small bundles, and everything rendered from them alone."""
