"""Named quantities, samples of them over seeds, and what may be concluded from them. No torch, no paper, no files."""
