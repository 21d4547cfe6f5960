"""What is shown in a terminal: data in, text or renderable out."""
