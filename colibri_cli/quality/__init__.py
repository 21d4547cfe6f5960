"""Multiple-choice tasks decided by log-likelihood, and comparing two runs of them."""
