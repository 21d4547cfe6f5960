"""Building blocks that the architectures share: weights in, operators on rows out."""
