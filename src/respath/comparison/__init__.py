"""Regenerated numbers set against printed ones: cells, claims, and the report over both (pure Python; no training)."""
