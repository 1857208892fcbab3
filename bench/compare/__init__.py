"""Compare the speed of two commits by runs in turns: `python -m bench.compare BASE`.

* `__main__` checks the other commit out, and runs `one_run` in both trees in turns.
* `one_run` runs a few shapes once, on a cluster of the tree in which it is started.
* `statistics` computes medians, ratios and confidence intervals, and the lines of the history. It
  is pure.
"""
