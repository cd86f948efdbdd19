import torch

# test processes share the cores: two busy thread pools are many times slower than one thread each
torch.set_num_threads(1)
