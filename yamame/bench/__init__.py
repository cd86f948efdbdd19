"""What `yamame bench` runs: the speed of the learner, the collector, the replay and whole runs on this machine."""
