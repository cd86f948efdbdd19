"""HyperX: variBAD with rewards for exploration in training, for novelty and errors of the belief (arXiv 2010.01062)."""
