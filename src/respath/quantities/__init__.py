"""Quantities: what a cell, a point of a figure, a claim or a caption is about. No torch, no paper, no files.

A *metric* (``loss.mean``) is a name; ``kinds.KINDS`` says what its first part means: of what it is, where its file lies, in
which unit it comes. A *quantity* is a metric of a subject (a run in the paper's terms, a checkpoint, a domain), perhaps
against another one. A *reading* is its value at one seed, a *sample* its readings over seeds. ``derived`` has metrics that are
functions of other quantities (savings, critical steps, ratios). ``statistics`` and ``verdicts`` say what may be concluded.
``respath.results`` reads: ``results.sample(paper, quantity)``.
"""
