"""What the web servers of `yamame view` and `yamame serve` share: addresses, access rules, time limits."""
