"""Number formats of weights: one file per format, each exposing `FORMAT`."""
