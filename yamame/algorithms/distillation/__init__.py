"""Algorithm distillation: supervised prediction of the actions of learning histories (arXiv 2210.14215)."""
