"""Measure how quickly Spark reads the log, and how quickly it follows the log.

`python -m bench.spark` runs the measurement. `fill` appends the records, `reading` and `following`
measure Spark, `__main__` runs them and prints the results. A *yardstick* is another program that
does comparable work: `yardstick` runs it, and `kafka_following` is one.
"""
