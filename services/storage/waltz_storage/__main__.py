"""Run the command ``waltz-storage`` by ``python -m waltz_storage CONFIG.yml``."""

from waltz_storage.main import main

main()
