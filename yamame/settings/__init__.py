"""From a recipe's name and what the user changes of it to a full config."""
