"""Typed configuration: the papers, scales and user dials, resolved to frozen run specs (imports no torch)."""
