"""The HTTP side: vendor dialects over one neutral kind of request."""
