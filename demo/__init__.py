"""Run the demo: append a year of flights to a log, and compute propagated delays by Spark.

    python -m demo [--flights N] [--out DIR]

Three producers, one for each airport of New York, append every departure of 2013 to a cluster on
this machine. Each flight is appended under a lock on its aircraft. Meanwhile a storage is killed
and restarted. Then a Spark job reads the log, compares it with the source, and answers a question:
how much of its delay does an aircraft pass on to its next flight?

* data and logic: `flights` (reads the data), `timeline` (the flights that may be logged next),
  `fleet` (the last transaction of each aircraft), `checks` (the checks of the flights that Spark
  has read)
* network and processes: `airport` (one producer), `traffic` (all producers, and the fault),
  `delays` (the Spark job), `spark_log` (redirects the output of Java)
* output: `plot` (the picture), `screen` (the terminal), `__main__` (runs all steps)
"""
