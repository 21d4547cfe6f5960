"""What a model needs and how fast it would be here, from its headers and a few measured rates."""
