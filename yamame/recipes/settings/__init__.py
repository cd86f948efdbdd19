"""What recipes share: network sizes, variants, the default agent, and the settings of the paper."""
