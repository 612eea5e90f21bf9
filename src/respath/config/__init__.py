"""Typed configuration: the papers, scales and the user's settings, resolved to frozen run specs (imports no torch)."""
