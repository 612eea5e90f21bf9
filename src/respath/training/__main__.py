"""``python -m respath.training``: see ``respath.training.command``."""

import sys

from respath.training.command import main

sys.exit(main())
