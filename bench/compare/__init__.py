"""Compare the speed of two commits by runs in turns: `python -m bench.compare BASE`.

* `one_run`: runs a few shapes on a cluster of the tree in which it is started
* `statistics`: medians, ratios and confidence intervals, and the lines of the history (pure)
"""
