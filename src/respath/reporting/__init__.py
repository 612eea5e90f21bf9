"""Tables, figures, pages and PDFs from whatever results exist; the same inputs give the same bytes."""
