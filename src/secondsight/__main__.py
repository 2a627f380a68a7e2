"""Run the command line as `python -m secondsight`."""

import sys

from secondsight.cli import main

sys.exit(main())
