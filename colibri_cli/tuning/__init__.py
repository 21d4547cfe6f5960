"""Finding the settings of speed that suit a model on this machine; none of them changes a token."""
