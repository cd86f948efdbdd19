import hypothesis
import torch

# test processes share the cores: two busy thread pools are many times slower than one thread each
torch.set_num_threads(1)

# and no example is wrong for being slow
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")
