"""``python -m waltz_storage CONFIG.yml`` is the command ``waltz-storage``."""

from waltz_storage.main import main

main()
