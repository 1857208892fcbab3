"""The demo: appends a year of flights to the log, and computes propagated delays by Spark.

    python -m demo [--flights N] [--out DIR]

The three airports of New York append every departure of 2013 to a cluster on this machine, each
flight under a lock on its aircraft, while a storage node is killed and restarted. Then a Spark job
reads the log, checks it against the source, and answers a question.

* pure: `flights` (the data; reads one file), `timeline` (the flights that may be logged next),
  `fleet` (an airport's state), `checks` (the checks of the flights that Spark has read)
* network and processes: `airport` (a producer), `traffic` (all of them, and the fault), `delays`
  (the Spark job), `spark_log` (its noise), `plot`, `screen`, `__main__`
"""
