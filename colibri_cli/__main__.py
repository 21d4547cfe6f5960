"""`python -m colibri_cli`: the same as the `coli` command."""

import sys

from colibri_cli.main import main

sys.exit(main())
