"""The interactive session of `coli chat`: conversation, input, screen, and the loop over them."""
