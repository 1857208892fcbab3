"""Check the repository's own style; ``make lint`` runs these checks.

`words` finds private terms, `sizes` finds functions and modules that are too long, `headers` finds
modules without a header, and headers that say "Pure" although no import contract covers the module.
"""
