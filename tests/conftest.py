import torch

# test processes share the machine's cores; two busy thread pools on the same cores are many times slower than one thread
torch.set_num_threads(1)
