"""Checks of the repository's own style, run by ``make lint``: words, sizes, module headers.

`words` keeps private terms out, `sizes` bounds functions and modules, `headers` holds the rule that
"Pure." stands in a module's header exactly if the import contract covers the module.
"""
