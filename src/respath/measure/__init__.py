"""What is done to a model or a finished run: each module writes one kind of result file. Reads no paper."""
