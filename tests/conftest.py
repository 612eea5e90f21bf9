"""What all tests share: a compiler cache of their own, and the checkout without what its user has set or made in it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

# A killed compilation leaves a broken library in the user's cache, which a later one would load. Set at import, so that
# subprocesses inherit it.
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="respath-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)

# The project that tests find: links to what is in the repository, no config.yaml, no results.
_CHECKOUT = Path(__file__).resolve().parents[1]
os.environ["RESPATH_ROOT"] = tempfile.mkdtemp(prefix="respath-project-")
atexit.register(shutil.rmtree, os.environ["RESPATH_ROOT"], ignore_errors=True)
for _name in ("src", "papers", "scales", "workflow", "docs", "reports", "profiles", "Snakefile"):
    Path(os.environ["RESPATH_ROOT"], _name).symlink_to(_CHECKOUT / _name)
