"""`python -m dna` is `dna`."""

import sys

from dna.cli import main

sys.exit(main())
