"""HyperX: variBAD with two rewards for exploration in training, novelty and the error of the belief (arXiv 2010.01062)."""
