"""`python -m colibri_engine.jobs NAME …`: one offline job in a process of its own."""

import sys

from colibri_engine.jobs import main

sys.exit(main(sys.argv[1:]))
