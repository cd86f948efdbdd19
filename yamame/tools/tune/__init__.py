"""`yamame tune`: a search for settings of a recipe, by Optuna."""
