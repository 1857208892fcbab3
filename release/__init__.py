"""Builds a release: wheel, sdist, images and chart of one version. ``make release`` runs it.

`versions` finds every place that names the version; `__main__` builds. Not part of the product.
"""
