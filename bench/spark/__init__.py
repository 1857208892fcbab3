"""`python -m bench.spark`: how quickly Spark reads the log, and follows it.

`fill` puts the records there, `reading` and `following` are measured in Spark, `__main__` runs them
and prints the table.
"""
