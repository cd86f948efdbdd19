"""Actor and critic heads, action distributions, value normalization."""
