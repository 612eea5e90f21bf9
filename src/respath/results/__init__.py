"""Results: files of finished work (``store``), those that the repository keeps (``kept``), and samples read from them (``reader``)."""
