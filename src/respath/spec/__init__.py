"""What a run is and what it costs: model, recipe, data, ids and accounts. No torch, and no paper."""
