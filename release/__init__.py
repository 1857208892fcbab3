"""Build a release: wheel, sdist, images and chart of one version. ``make release`` runs it.

`versions` finds every place that names the version, `__main__` builds the artifacts, and `extras`
tries the extras of the wheel: the optional sets of dependencies, such as ``waltz-log[cli]``. This
package is not part of the product.
"""
