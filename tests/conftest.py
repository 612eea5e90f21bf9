"""What all tests share: a compiler cache of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# A killed compilation leaves a broken library in the user's cache, which a later one would load. Set at import, so that
# subprocesses inherit it.
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="respath-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)
