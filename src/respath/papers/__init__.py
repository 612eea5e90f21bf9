"""What a paper asks, as typed documents: its models, tables, figures, printed numbers, claims and open questions."""
