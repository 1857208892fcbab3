"""Pure. Errors of opening a file that do not mean damage, each with its remedy.

With these errors, restoring the partition from another replica would not help.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

# "them" are the files that the error text names before the remedy.
_RIGHTS = "give this process the right to read and write them"
NOT_DAMAGE: Final[Mapping[int, str]] = {
    errno.EMFILE: "raise this process's limit of open files (ulimit -n)",
    errno.ENFILE: "raise this machine's limit of open files (fs.file-max)",
    errno.ENOMEM: "free memory",
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "mount the volume for writing",
}
