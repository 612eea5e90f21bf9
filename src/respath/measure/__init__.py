"""What is done to a model or a finished run: losses, n-grams, downstream tasks, analyses, time and memory.

Each module writes one kind of result file (``respath.quantities.kinds``). Reads no paper.
"""
