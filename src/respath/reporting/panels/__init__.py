"""Figures made of panels: one module per kind of quantity reads results into plain data; ``drawing`` alone knows matplotlib."""
